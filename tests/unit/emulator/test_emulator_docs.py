"""The emulator's page tells what there is."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path

import pytest

from emulator.__main__ import emulate
from emulator.faults import FAULT_KINDS
from emulator.models import USECASES, EmulatedModel, load_yaml, parse_models
from simulator.localai_effects import RecordKind, StopCause

PAGE = (Path(__file__).parents[3] / "docs/reference/emulator.md").read_text()


def rows(title: str) -> dict[str, str]:
    """First cell by name of the table under a title."""
    section = PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]
    found = {}
    for line in section.splitlines():
        if line.startswith("| `"):
            first, _, rest = line[2:].partition(" | ")
            for name in re.findall(r"`([^`]+)`", first):
                found[name] = rest
    return found


def test_every_flag_is_told():
    names = {f"--{name.replace('_', '-')}" for name in inspect.signature(emulate).parameters}
    assert set(rows("Flags")) == names


def test_every_fault_is_told_with_its_keys():
    told = rows("Faults")
    assert set(told) == set(FAULT_KINDS)
    for kind, keys in FAULT_KINDS.items():
        assert tuple(told[kind].partition(" | ")[0].split(", ")) == keys


def test_every_event_and_cause_is_told():
    told = rows("Events")
    assert set(told) == set(RecordKind)
    assert all(f"`{cause}`" in told["unloaded"] for cause in StopCause)


def test_the_example_is_a_model_and_names_every_key():
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    document = load_yaml(example)
    (model,) = parse_models(document)
    assert set(document["models"][0]) == {item.name for item in fields(EmulatedModel)} - {"extra"}
    assert model.extra == {}
    for kind in USECASES:
        assert re.search(rf"\b{kind}\b", example), kind


@pytest.mark.parametrize("name", ["seq", "kind", "at_s", "model", "request_id", "cold", "cause"])
def test_every_field_of_an_event_is_told(name):
    assert f"`{name}`" in PAGE
