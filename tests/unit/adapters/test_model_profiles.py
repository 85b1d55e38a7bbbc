from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.model_profiles import parse_scheduling_profile
from adapters.settings_types import MIB
from contracts.config import ModelProfile
from contracts.errors import Invalid
from contracts.events import PriorityClass
from contracts.ids import ModelId

MODEL_FILE = """
name: "llama-3-8b"
parameters:
  model: "llama-3-8b.Q4_K_M.gguf"
context_size: 8192
some_key_of_a_newer_version: {a: [1]}
scheduling_profile:
  memory_footprint_mb: 6500
  gpu_acceleration_factor: 4.2
  priority_class: "high"
  max_acceptable_latency_ms: 500
  preferred_backend: "cuda"
"""


def declared(text: str | bytes) -> ModelProfile:
    """What is declared for us, without what LocalAI's own keys say of the model."""
    profile = parse_scheduling_profile(text)
    return replace(profile, revision="", modality=None, weights=())


def test_the_profile_of_a_model_file() -> None:
    expected = ModelProfile(
        model=ModelId("llama-3-8b"),
        footprint_bytes=6500 * MIB,
        target_s=0.5,
        priority=PriorityClass.REALTIME,
        preferred_backend="cuda",
    )
    assert declared(MODEL_FILE) == expected
    assert declared(MODEL_FILE.encode()) == expected


def test_a_model_file_without_a_profile() -> None:
    assert declared("name: a\nscheduling_profile:\n") == ModelProfile(model=ModelId("a"))
    assert declared('{"name": "a", "preload": true, "pinned": true}') == (
        ModelProfile(model=ModelId("a"), preload=True, pinned=True)
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [", "llama.yaml:1: is not YAML"),
        ("- a\n", "llama.yaml:1: the top must be a mapping"),
        ("backend: x\n", "llama.yaml: name = null: must be text"),
        ("name: 3\n", "llama.yaml:1: name = 3: must be text"),
        ("name: \ud800\n", "llama.yaml:1: is not UTF-8 text"),
        (
            "name: a.b\nscheduling_profile:\n  priority_clas: high\n",
            'llama.yaml:3: models["a.b"].scheduling_profile.priority_clas: unknown key, did you '
            'mean models["a.b"].scheduling_profile.priority_class?',
        ),
        (
            "name: a\nscheduling_profile:\n  memory_footprint_mb: 6.5Gi\n",
            'llama.yaml:3: models.a.scheduling_profile.memory_footprint_mb = "6.5Gi": must be a '
            "whole number from 1 to 1073741824",
        ),
    ],
)
def test_what_is_wrong_with_a_model_file(text: str, line: str) -> None:
    with pytest.raises(Invalid) as caught:
        parse_scheduling_profile(text, source="llama.yaml")
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("keys", "slots"),
    [
        ("", None),
        ("slots: 3\nlimits: {max_concurrent: 8}", 3),
        ("limits: {max_concurrent: 8, retry_after_seconds: 2}", 8),
        ("limits: {max_concurrent: 0}", None),
        ("limits: [1]", None),
        ("options: [gpu, 'parallel:4', 'cache_ram:-1']", 4),
        ("options: ['n_parallel: 2']\nlimits: {max_concurrent: 6}", 2),
        ("options: ['parallel:many']", None),
        ("options: parallel", None),
    ],
)
def test_how_many_requests_localai_serves_at_once(keys: str, slots: int | None) -> None:
    assert parse_scheduling_profile(f"name: a\n{keys}\n").slots == slots
