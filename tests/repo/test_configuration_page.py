"""The page of keys and effects: each key is one, each test is there, each example has its rows."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from adapters.localai_keys import LOCALAI_MODEL_KEYS
from adapters.settings_environment import FOREIGN_NAMES, PRELOAD_VARIABLE
from adapters.settings_keys import known_keys

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/configuration.md").read_text()
EXAMPLES = ROOT / "data/examples"
EFFECTS = ROOT / "tests/unit/adapters/test_settings_effects.py"

ROW = re.compile(r"^\| `([^`]+)` \| .+ \| `(test_\w+)` \|$", re.MULTILINE)


SECTIONS = {
    "models.<name>.variants": ("models", "*", "variants", "*"),
    "autoscaling.<name>": ("autoscaling", "*"),
}
"""Sections that no example has, by their title."""

ROW_OF_SECTION = re.compile(r"^\| `(\w+)` \| .+ \| `([\w/]+\.py)::(test_\w+)` \|$", re.MULTILINE)


def rows() -> dict[str, dict[str, str]]:
    """Test by key, by example."""
    parts = re.split(r"^### (\S+\.(?:yaml|txt))$", PAGE, flags=re.MULTILINE)
    return {
        name: dict(ROW.findall(text)) for name, text in zip(parts[1::2], parts[2::2], strict=True)
    }


def keys_of(name: str) -> Iterator[str]:
    """Keys of an example, as the page writes them."""
    path = EXAMPLES / name
    if path.suffix == ".txt":
        yield from (line.split("=")[0] for line in path.read_text().splitlines())
        return
    yield from _keys(YAML(typ="safe").load(path), ())


def _keys(value: Any, place: tuple[str, ...]) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            assert isinstance(item, dict)
            for key in item:
                yield f"{place[0]}[].{key}"
    elif place[:1] == ("resources",) and len(place) == 1:
        for group in value.values():
            yield from (f"resources.<name>.{key}" for key in group)
    elif isinstance(value, dict):
        for key, inner in value.items():
            nested = isinstance(inner, dict) or (isinstance(inner, list) and not place)
            yield from _keys(inner, (*place, key)) if nested else [".".join((*place, key))]


def test_every_example_has_a_section_and_every_key_of_it_a_row():
    found = rows()
    assert set(found) == {path.name for path in EXAMPLES.iterdir()}
    everywhere = {key for keys in found.values() for key in keys}
    missing = {
        f"{name}: {key}"
        for name in found
        for key in keys_of(name)
        if key not in everywhere and not _is_localais(key)
    }
    assert sorted(missing) == []


def _is_localais(key: str) -> bool:
    """A key of LocalAI's own in a model file, or one that every file needs."""
    return key.split(".")[0] in LOCALAI_MODEL_KEYS or key in ("models[].name", "localai.url")


def test_every_key_on_the_page_is_one():
    known = {".".join(path).replace(".*", ".<name>") for path in known_keys()}
    plain = known | {key.rpartition("models.<name>.")[2] for key in known}
    variables = {*FOREIGN_NAMES, PRELOAD_VARIABLE}
    strange = [
        key
        for keys in rows().values()
        for key in keys
        if key.replace("[].", ".<name>.") not in plain
        and key not in variables
        and key.removeprefix("models[].") not in LOCALAI_MODEL_KEYS
    ]
    assert strange == []


def _tests_of(path: Path) -> set[str]:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, kinds)}


@pytest.mark.parametrize("title", SECTIONS)
def test_a_section_without_an_example_has_each_key_with_a_test_that_is_there(title: str):
    text = PAGE.partition(f"\n### {title}\n")[2].partition("\n#")[0]
    found = ROW_OF_SECTION.findall(text)
    place = SECTIONS[title]
    keys = {path[-1] for path in known_keys() if path[:-1] == place}
    assert sorted(key for key, _, _ in found) == sorted(keys)
    for _, file, test in found:
        assert test in _tests_of(ROOT / "tests/unit" / file), f"{file}::{test}"


def test_every_test_on_the_page_is_there():
    named = {test for keys in rows().values() for test in keys.values()}
    assert sorted(named - _tests_of(EFFECTS)) == []
