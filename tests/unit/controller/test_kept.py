from __future__ import annotations

from dataclasses import replace

from contracts.config import ModelProfile, PlannerConfig
from controller.kept import overfull
from tests.worlds import MIB, NODE, A, B, C, model, world

CONFIG = PlannerConfig(reserve_ratio=0.2)


def test_what_is_kept_resident_must_fit_beside_the_reserve():
    w = world(model(A, mb=15, pinned=True), model(B, mb=10), model(C, mb=10), mb=30)
    profiles = {B: ModelProfile(model=B, preload=True)}
    assert overfull(w, profiles, CONFIG) == {NODE: (25 * MIB, 24 * MIB)}
    assert overfull(w, {}, CONFIG) == {}
    assert overfull(w, {B: ModelProfile(model=B)}, CONFIG) == {}


def test_nothing_is_said_where_sizes_or_memory_are_not_known():
    w = world(model(A, mb=None, pinned=True), model(B, mb=100, pinned=True), mb=None)
    assert overfull(w, {}, CONFIG) == {}
    lost = replace(world(model(A, mb=100, pinned=True)), nodes={})
    assert overfull(lost, {}, CONFIG) == {}


def test_models_on_the_host_of_a_gpu_node_are_not_counted_there():
    w = world(model(A, mb=100, pinned=True, on_host=True))
    w = replace(w, nodes={NODE: replace(w.nodes[NODE], accelerator="cuda")})
    assert overfull(w, {}, CONFIG) == {}
