from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import ModelProfile
from contracts.ids import ModelId
from contracts.variants import Fallback, Ladder, LadderOptions, Rung, RungKind, made_name
from controller.ladders import (
    HALF_OF_UNKNOWN_LAYERS,
    MAX_SMALLER,
    Family,
    all_ladders,
    beside,
    families_of,
    family_of,
    listed_rungs,
    with_host_rungs,
)
from controller.variant_documents import document_of, is_current, is_ours
from tests.worlds import A, B, model, world

Q8, Q4, Q2 = "llama.Q8_0.gguf", "llama.Q4_K_M.gguf", "llama.Q2_K.gguf"
BOTH = LadderOptions(partial=True, smaller_files=True)


def profile(name: ModelId = A, *weights: str, **fields: object) -> ModelProfile:
    return replace(ModelProfile(model=name, weights=weights), **fields)  # type: ignore[arg-type]  # the test's own


def quantised(word: str, file: str = "") -> Rung:
    return Rung(
        model=made_name("a", word),
        kind=RungKind.QUANTISED,
        is_made=True,
        quantisation=word,
        file=file,
    )


# Files


@pytest.mark.parametrize(
    ("file", "family"),
    [
        ("Llama-3.Q8_0.gguf", Family("llama-3", "q8_0")),
        ("llm/llama-3-q4_k_m.GGUF", Family("llm/llama-3", "q4_k_m")),
        ("llama_f16.gguf", Family("llama", "f16")),
        ("llama-bf16.gguf", Family("llama", "bf16")),
        ("llama.gguf", None),
        ("llamaq8_0.gguf", None),
        (".q8_0.gguf", None),
        ("llama.q8_0.bin", None),
        ("llama", None),
    ],
)
def test_a_files_name_tells_its_weights_and_their_quantisation(file, family):
    assert family_of(file) == family


def test_the_file_beside_differs_in_nothing_else():
    files = families_of({Q8, Q4, "other.Q4_K_M.gguf", "sub/llama.Q4_K_M.gguf", "plain.gguf"})
    assert beside(Q8, "q4_k_m", files) == Q4
    assert beside(Q8, "q2_k", files) is None
    assert beside("llama", "q4_k_m", files) is None


# Ladders


def test_a_configured_ladder_is_kept_and_its_files_are_found():
    named = Rung(model=B, kind=RungKind.QUANTISED)
    given = quantised("q2_k", "own.gguf")
    rungs = (named, given, quantised("q4_k_m"), quantised("q3_k_m"))
    configured = {A: Ladder(model=A, rungs=rungs, cpu_factor=3.0)}
    found = all_ladders(configured, LadderOptions(), {A: profile(A, Q8)}, [A, B], [Q4])
    assert found == {
        A: Ladder(model=A, rungs=(named, given, quantised("q4_k_m", Q4)), cpu_factor=3.0)
    }


def test_without_any_file_a_rung_of_files_is_left_out():
    configured = {A: Ladder(model=A, rungs=(quantised("q4_k_m"),))}
    assert all_ladders(configured, LadderOptions(), {}, [A]) == {}
    assert all_ladders(configured, LadderOptions(), {A: profile(A)}, [A], [Q4]) == {}


def test_a_model_that_is_not_listed_has_none():
    configured = {A: Ladder(model=A, rungs=(Rung(model=B, kind=RungKind.QUANTISED),))}
    assert all_ladders(configured, LadderOptions(), {}, [B]) == {}


def test_options_give_smaller_files_and_half_of_the_layers():
    profiles = {A: profile(A, Q8, gpu_layers=30), B: profile(B, Q4)}
    files = [Q2, "llama.F16.gguf", "other.Q2_K.gguf", "plain.gguf"]
    found = all_ladders({}, BOTH, profiles, [A, B], files)
    assert found[A].rungs == (
        Rung(model=B, kind=RungKind.QUANTISED, quantisation="q4_k_m"),
        quantised("q2_k", Q2),
        Rung(model=made_name("a", "gpu15"), kind=RungKind.PARTIAL, is_made=True, gpu_layers=15),
    )
    assert [rung.model for rung in found[B].rungs] == [
        made_name("b", "q2_k"),
        made_name("b", f"gpu{HALF_OF_UNKNOWN_LAYERS}"),
    ]


def test_of_many_files_the_best_are_taken():
    files = [f"llama.{word}.gguf" for word in ("q6_k", "q5_k_m", "q4_k_m", "q2_k")]
    found = all_ladders({}, LadderOptions(smaller_files=True), {A: profile(A, Q8)}, [A], files)
    assert [rung.quantisation for rung in found[A].rungs] == ["q6_k", "q5_k_m", "q4_k_m"]
    assert len(found[A].rungs) == MAX_SMALLER


@pytest.mark.parametrize(
    ("configured", "profiles"),
    [
        ({A: Ladder(model=A, rungs=(), fallback=Fallback.DENY)}, {A: profile(A, Q8)}),
        ({}, {A: profile(A, Q8, on_host=True)}),
        ({}, {A: profile(A, Q8, gpu_layers=0)}),
        ({}, {}),
    ],
)
def test_who_refuses_or_runs_on_cpus_is_given_nothing(configured, profiles):
    assert all_ladders(configured, BOTH, profiles, [A], [Q4]) == {}


def test_nothing_is_made_of_what_we_made_nor_of_one_layer():
    ours = made_name("x", "cpu")
    assert all_ladders({}, BOTH, {ours: profile(ours, Q8)}, [ours], [Q4]) == {}
    one = {A: profile(A, "a.gguf", gpu_layers=1)}
    assert all_ladders({}, BOTH, one, [A]) == {}
    assert all_ladders({}, BOTH, {A: profile(A, gpu_layers=1)}, [A]) == {}


def test_what_is_said_of_a_model_without_rungs_holds_for_those_it_is_given():
    configured = {A: Ladder(model=A, rungs=(), fallback=Fallback.ASK, cpu_factor=2.0)}
    found = all_ladders(configured, LadderOptions(partial=True), {A: profile(A, Q8)}, [A])
    assert (found[A].fallback, found[A].cpu_factor) == (Fallback.ASK, 2.0)


def test_gateways_are_told_of_rungs_that_are_there():
    cpu = Rung(model=made_name("a", "cpu"), kind=RungKind.CPU, is_made=True)
    ladders = {A: Ladder(model=A, rungs=(cpu, Rung(model=B, kind=RungKind.QUANTISED)))}
    assert listed_rungs(ladders, world(model(A))) == {}
    assert listed_rungs(ladders, world(model(B))) == {}
    shown = listed_rungs(ladders, world(model(A), model(B)))
    assert [rung.model for rung in shown[A].rungs] == [B]


def test_rungs_on_cpus_take_host_memory_whatever_is_estimated():
    cpu = Rung(model=B, kind=RungKind.CPU)
    ladders = {A: Ladder(model=A, rungs=(cpu, Rung(model=A, kind=RungKind.QUANTISED)))}
    state = with_host_rungs(world(model(A), model(B)), ladders)
    assert (state.models[A].on_host, state.models[B].on_host) == (False, True)
    assert with_host_rungs(state, ladders) is state


# Files of rungs

BASE = {
    "name": "a",
    "backend": "llama-cpp",
    "parameters": {"model": Q8, "temperature": 0.2},
    "gpu_layers": 99,
    "context_size": 8192,
    "pinned": True,
    "concurrency_groups": ["big"],
    "scheduling_profile": {"priority_class": "high"},
}
CPU = Rung(
    model=made_name("a", "cpu"),
    kind=RungKind.CPU,
    is_made=True,
    gpu_layers=0,
    threads=4,
    context_size=2048,
)


def test_a_rungs_file_is_the_models_but_for_what_it_gives_up():
    document = document_of(A, BASE, CPU)
    mark = document.pop("headstart")
    assert document == {
        "name": "a--headstart-cpu",
        "backend": "llama-cpp",
        "parameters": {"model": Q8, "temperature": 0.2},
        "gpu_layers": 0,
        "threads": 4,
        "context_size": 2048,
        "scheduling_profile": {"priority_class": "high"},
    }
    assert isinstance(mark, dict)
    assert (mark["made"], mark["of"], mark["kind"]) == (True, "a", "cpu")


def test_another_file_takes_the_place_of_the_models_own():
    document = document_of(A, BASE, quantised("q4_k_m", Q4))
    assert document["parameters"] == {"model": Q4, "temperature": 0.2}
    assert document["gpu_layers"] == 99
    bare = document_of(A, {"name": "a"}, quantised("q4_k_m", Q4))
    assert bare["parameters"] == {"model": Q4}


def test_it_is_ours_and_as_new_as_what_it_was_made_of():
    document = document_of(A, BASE, CPU)
    assert is_ours(document)
    assert is_current(document, BASE, CPU)
    assert is_current(document, {**BASE, "pinned": False}, CPU)
    assert not is_current(document, {**BASE, "f16": True}, CPU)
    assert not is_current(document, BASE, replace(CPU, threads=8))
    for other in (BASE, {**BASE, "headstart": "made"}, {**BASE, "headstart": {"made": False}}):
        assert not is_ours(other)
    assert not is_current(BASE, BASE, CPU)
