from __future__ import annotations

import pytest

from adapters.model_profiles import parse_scheduling_profile
from adapters.model_revision import revision_of

PLAIN = {
    "name": "a",
    "backend": "llama-cpp",
    "context_size": 4096,
    "parameters": {"model": "a.gguf", "temperature": 0.2},
    "options": ["parallel:4"],
}


@pytest.mark.parametrize(
    "changed",
    [
        {"context_size": 8192},
        {"gpu_layers": 20},
        {"options": ["parallel:8"]},
        {"parameters": {"model": "a-q4.gguf", "temperature": 0.2}},
        {"backend": "vllm"},
        {"mmap": False},
    ],
)
def test_what_takes_memory_or_time_is_another_configuration(changed):
    assert revision_of(PLAIN | changed) != revision_of(PLAIN)


@pytest.mark.parametrize(
    "changed",
    [
        {"name": "b"},
        {"parameters": {"model": "a.gguf", "temperature": 0.9, "top_p": 0.5}},
        {"system_prompt": "Be brief."},
        {"scheduling_profile": {"memory_footprint_mb": 10}},
        {"template": {"chat": "x"}},
    ],
)
def test_what_is_said_and_how_it_is_sampled_is_not(changed):
    assert revision_of(PLAIN | changed) == revision_of(PLAIN)


def test_the_order_of_keys_does_not_matter():
    assert revision_of(dict(reversed(PLAIN.items()))) == revision_of(PLAIN)


def test_odd_values_have_a_digest_too():
    assert len(revision_of({"parameters": ["no mapping"], "x": object, "y": "\ud800"})) == 12


def test_a_model_file_has_one():
    text = "name: a\nbackend: llama-cpp\nparameters:\n  model: a.gguf\n"
    assert parse_scheduling_profile(text).revision == revision_of(
        {"name": "a", "backend": "llama-cpp", "parameters": {"model": "a.gguf"}}
    )
