"""Models on CPUs, with some of their layers there, and in other quantisations."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator.catalog import Catalog, with_file
from emulator.models import MIB, EmulatedModel, load_yaml, parse_model
from emulator.work import timing

LLAMA = EmulatedModel(
    name="llama",
    footprint_mb=8500,
    load_s=17.0,
    tokens_per_s=40.0,
    first_token_s=0.25,
    cpu_factor=8.0,
    file="llama.Q8_0.gguf",
)


def test_what_is_not_on_the_gpu_takes_none_of_its_memory_and_is_slower():
    cpu, half = replace(LLAMA, gpu_layers=0), replace(LLAMA, gpu_layers=16)
    assert [one.spec().footprint_bytes // MIB for one in (LLAMA, half, cpu)] == [8500, 4250, 0]
    assert [one.slowdown for one in (LLAMA, half, cpu)] == [1.0, 4.5, 8.0]
    assert replace(LLAMA, gpu_layers=99).gpu_share == 1.0
    plain = timing(LLAMA, tokens=40, service_s=None, extra_s=0.0)
    slow = timing(cpu, tokens=40, service_s=None, extra_s=0.0)
    assert plain == pytest.approx((0.25, 0.025, 1.25))
    assert slow == pytest.approx((2.0, 0.2, 10.0))
    assert timing(cpu, tokens=4, service_s=1.0, extra_s=0.0) == pytest.approx((2.0, 1.5, 8.0))


@pytest.mark.parametrize(
    ("file", "footprint_mb", "load_s"),
    [
        ("llama.Q4_K_M.gguf", 4800, 9.6),
        ("llama.Q8_0.gguf", 8500, 17.0),
        ("other.gguf", 8500, 17.0),
        ("", 8500, 17.0),
    ],
)
def test_other_weights_are_as_much_smaller_as_their_quantisation(file, footprint_mb, load_s):
    model = with_file(LLAMA, file)
    assert model.footprint_mb == footprint_mb
    assert model.load_s == pytest.approx(load_s)
    assert model.weights_file == (file or "llama.Q8_0.gguf")


def test_a_model_without_weights_has_none_to_change():
    bare = replace(LLAMA, weights=False)
    assert with_file(bare, "llama.Q4_K_M.gguf") is bare


def test_its_own_file_says_what_is_made_of_it():
    catalog = Catalog((LLAMA,))
    entry = catalog.get("llama")
    assert entry is not None
    document = load_yaml(entry.text)
    assert document["parameters"]["model"] == "llama.Q8_0.gguf"
    made = catalog.put({**document, "name": "llama--headstart-cpu", "gpu_layers": 0})
    assert made.model is not None
    assert (made.model.slowdown, made.model.spec().footprint_bytes) == (8.0, 0)
    small = {**document, "name": "q4", "parameters": {"model": "llama.Q4_K_M.gguf"}}
    smaller = catalog.put(small).model
    assert smaller is not None
    assert smaller.footprint_mb == 4800
    partial = parse_model({"name": "p", "gpu_layers": 8, "layers": 16})
    assert load_yaml(partial.to_yaml())["gpu_layers"] == 8
    assert "cpu_factor" not in load_yaml(partial.to_yaml())["emulator"]


def test_weights_go_with_the_last_model_that_names_them():
    catalog = Catalog((LLAMA,))
    catalog.put({"name": "copy", "parameters": {"model": "llama.Q8_0.gguf"}})
    catalog.put({"name": "small", "parameters": {"model": "llama.Q4_K_M.gguf"}})
    catalog.put({"name": "bare"})
    for name in ("copy", "small", "bare", "nobody"):
        catalog.delete(name)
    assert catalog.removed_files == ["llama.Q4_K_M.gguf"]
