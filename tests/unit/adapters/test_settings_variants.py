from __future__ import annotations

from pathlib import Path

import pytest

from adapters.settings import Settings, load_settings
from contracts.errors import Invalid
from contracts.ids import ModelId
from contracts.variants import Fallback, Ladder, LadderOptions, Rung, RungKind

LADDER = """
models:
  org/llama:
    fallback: ask
    scheduling_profile: {gpu_acceleration_factor: 8}
    variants:
      - llama-small
      - quantisation: Q4-K-M
        file: llama.Q4_K_M.gguf
      - {quantisation: q2_k, gpu_layers: 8}
      - gpu_layers: 12
      - {cpu: true, threads: 4, context_size: 2048}
      - {model: llama-slow, cpu: true}
"""


def load(text: str, folder: Path) -> Settings:
    file = folder / "headstart.yaml"
    file.write_text(text)
    return load_settings({"HEADSTART_CONFIG": str(file)})


def test_a_ladder_names_models_and_says_what_is_made(tmp_path):
    ladder = load(LADDER, tmp_path).controller_config().ladders[ModelId("org/llama")]
    assert ladder == Ladder(
        model=ModelId("org/llama"),
        fallback=Fallback.ASK,
        cpu_factor=8.0,
        rungs=(
            Rung(model=ModelId("llama-small"), kind=RungKind.QUANTISED),
            Rung(
                model=ModelId("org_llama--headstart-q4_k_m"),
                kind=RungKind.QUANTISED,
                is_made=True,
                quantisation="q4_k_m",
                file="llama.Q4_K_M.gguf",
            ),
            Rung(
                model=ModelId("org_llama--headstart-q2_k-gpu8"),
                kind=RungKind.PARTIAL,
                is_made=True,
                quantisation="q2_k",
                gpu_layers=8,
            ),
            Rung(
                model=ModelId("org_llama--headstart-gpu12"),
                kind=RungKind.PARTIAL,
                is_made=True,
                gpu_layers=12,
            ),
            Rung(
                model=ModelId("org_llama--headstart-cpu"),
                kind=RungKind.CPU,
                is_made=True,
                gpu_layers=0,
                threads=4,
                context_size=2048,
            ),
            Rung(model=ModelId("llama-slow"), kind=RungKind.CPU, gpu_layers=0),
        ),
    )
    assert [rung.on_host for rung in ladder.rungs] == [False] * 4 + [True] * 2


def test_a_model_that_says_nothing_of_it_has_no_ladder(tmp_path):
    config = load("models: {a: {preload: true}, b: {fallback: deny}}", tmp_path).controller_config()
    assert config.ladders == {"b": Ladder(model=ModelId("b"), rungs=(), fallback=Fallback.DENY)}
    assert config.ladder_options == LadderOptions()
    assert not config.ladder_options.any


def test_options_give_rungs_to_all_others(tmp_path):
    text = "memory_optimization: {partial_loading: true, memory_compression: none}"
    options = load(text, tmp_path).controller_config().ladder_options
    assert options == LadderOptions(partial=True)
    assert options.any


@pytest.mark.parametrize(
    ("text", "makes"),
    [
        ("{}", False),
        ("models: {a: {variants: [b]}}", False),
        ("models: {a: {variants: [b, {cpu: true}]}}", True),
        ("memory_optimization: {partial_loading: true}", True),
        ("memory_optimization: {memory_compression: quantization}", True),
    ],
)
def test_gateways_know_whether_any_could_be_made(tmp_path, text, makes):
    assert load(text, tmp_path).gateway_config().makes_variants is makes


def test_keys_may_refuse_for_their_callers(tmp_path):
    text = f"""
gateway:
  named_keys:
    - {{name: ui, hash: "sha256:{"0" * 64}", fallback: deny}}
    - {{name: bot, hash: "sha256:{"1" * 64}"}}
"""
    keys = load(text, tmp_path).gateway_config().callers
    assert [key.fallback for key in keys] == [Fallback.DENY, None]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("variants: [{}]", "models.a.variants[0] = {}: must be the name of a model, or a mapping"),
        ("variants: [{threads: 4}]", "models.a.variants[0] = a mapping: must be the name of"),
        ("variants: [{quantisation: q9}]", 'models.a.variants[0].quantisation = "q9": must be'),
        ("variants: [{cpu: true, thread: 4}]", "did you mean models.a.variants[0].threads?"),
        ("variants: 3", "models.a.variants = 3: must be a list of model names"),
        ("fallback: perhaps", 'models.a.fallback = "perhaps": must be one of allow, ask, deny'),
    ],
)
def test_what_is_no_ladder_is_refused_with_its_line(tmp_path, entry, said):
    with pytest.raises(Invalid) as error:
        load(f"models:\n  a:\n    {entry}\n", tmp_path)
    assert ":3: " in str(error.value)
    assert said in str(error.value)
