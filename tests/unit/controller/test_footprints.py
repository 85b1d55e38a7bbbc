from __future__ import annotations

import doctest
from dataclasses import replace

import pytest

import controller.footprints
from contracts.config import ModelProfile
from contracts.ids import ModelId, NodeId
from contracts.memory import HOST, FootprintSource, PlaceId, PlaceKind, PlaceStatus
from contracts.profiles import Estimate
from contracts.world import NodeStatus, Residency
from controller.catalogue import with_catalogue
from controller.footprints import main_bytes, reconfigured, told_footprint, with_footprint
from tests.worlds import NODE, A, B, model, world

ONE = PlaceId("GPU-1")
GPU_NODE = NodeStatus(
    node=NODE,
    places=(
        PlaceStatus(place=ONE, kind=PlaceKind.GPU),
        PlaceStatus(place=HOST, kind=PlaceKind.HOST),
    ),
)
CPU_NODE = NodeStatus(node=NODE, places=(PlaceStatus(place=HOST, kind=PlaceKind.HOST),))
MEASURED, ESTIMATED, DECLARED, WEIGHTS = FootprintSource


def estimate(value, count=3):
    return Estimate(value=float(value), count=count, spread=0.0, at_s=1.0)


def told(**fields):
    return ModelProfile(model=A, **fields)


def test_the_examples_hold():
    assert doctest.testmod(controller.footprints).failed == 0


@pytest.mark.parametrize(
    ("estimated", "profile", "found"),
    [
        (100, told(footprint_bytes=50, weights_bytes=10), (100, ESTIMATED)),
        (None, told(footprint_bytes=50, weights_bytes=10), (50, DECLARED)),
        (0, told(footprint_bytes=50), (50, DECLARED)),
        (None, told(weights_bytes=100), (125, WEIGHTS)),
        (None, told(), None),
        (None, None, None),
    ],
)
def test_the_order_of_trust_among_what_is_told(estimated, profile, found):
    assert told_footprint(estimated, profile) == found


class TestBelieved:
    cold = replace(model(A), footprint_bytes=None)

    def test_measured_stands_over_everything(self):
        found = with_footprint(
            self.cold, GPU_NODE, {ONE: estimate(30), HOST: estimate(5)}, (20, ESTIMATED)
        )
        assert found.footprint_bytes == 30, "of the cards' memory"
        assert found.split == {ONE: 30, HOST: 5}
        assert (found.footprint_source, found.on_host) == (MEASURED, False)

    def test_a_single_one_far_below_what_is_told_waits_for_a_second(self):
        single = {ONE: estimate(10, count=1)}
        found = with_footprint(self.cold, GPU_NODE, single, (100, ESTIMATED))
        assert (found.footprint_bytes, found.footprint_source) == (100, ESTIMATED)
        found = with_footprint(self.cold, GPU_NODE, {ONE: estimate(10, 2)}, (100, ESTIMATED))
        assert found.footprint_bytes == 10
        found = with_footprint(self.cold, GPU_NODE, single, (15, ESTIMATED))
        assert found.footprint_bytes == 10
        found = with_footprint(self.cold, GPU_NODE, single, None)
        assert found.footprint_bytes == 10

    def test_what_is_only_in_host_ram_runs_there(self):
        found = with_footprint(self.cold, GPU_NODE, {HOST: estimate(30)}, None)
        assert (found.footprint_bytes, found.on_host) == (30, True)
        found = with_footprint(self.cold, CPU_NODE, {HOST: estimate(30)}, None)
        assert (found.footprint_bytes, found.on_host) == (30, False)

    def test_told_ones_replace_each_other_while_it_is_not_resident(self):
        known = replace(self.cold, footprint_bytes=20, footprint_source=DECLARED)
        found = with_footprint(known, GPU_NODE, {}, (25, ESTIMATED))
        assert (found.footprint_bytes, found.footprint_source) == (25, ESTIMATED)
        hot = replace(known, residency=Residency.HOT)
        assert with_footprint(hot, GPU_NODE, {}, (25, ESTIMATED)) == hot
        assert with_footprint(known, GPU_NODE, {}, None) == known

    def test_a_resident_one_of_which_nothing_is_known_takes_what_is_told(self):
        hot = replace(self.cold, residency=Residency.HOT)
        assert with_footprint(hot, GPU_NODE, {}, (25, ESTIMATED)).footprint_bytes == 25

    def test_one_without_a_source_was_given(self):
        given = replace(self.cold, footprint_bytes=20)
        assert with_footprint(given, GPU_NODE, {}, (25, ESTIMATED)) == given


def test_what_counts_against_the_nodes_one_number():
    assert main_bytes({ONE: 30, HOST: 5}, GPU_NODE) == 30
    assert main_bytes({HOST: 5}, GPU_NODE) == 5
    assert main_bytes({HOST: 5}, CPU_NODE) == 5


class TestAnotherConfiguration:
    def changed(self, **fields):
        status = replace(
            model(A),
            footprint_bytes=30,
            split={ONE: 30},
            footprint_source=MEASURED,
            out_of_memory_bytes=20,
            out_of_memory_until_s=500.0,
        )
        w = world(replace(status, **fields), model(B))
        return reconfigured(w, [A, ModelId("nobody")]).models[A]

    def test_is_measured_anew(self):
        status = self.changed()
        assert (status.footprint_bytes, status.split) == (None, {})
        assert status.footprint_source is None
        assert status.out_of_memory_bytes is None
        assert status.out_of_memory_until_s is None

    def test_a_resident_model_keeps_what_it_has(self):
        status = self.changed(residency=Residency.HOT)
        assert (status.footprint_bytes, status.footprint_source) == (30, MEASURED)
        assert status.out_of_memory_bytes is None

    def test_what_is_declared_is_still_so(self):
        assert self.changed(footprint_source=DECLARED).footprint_bytes == 30

    def test_nothing_changed(self):
        w = world(model(A))
        assert reconfigured(w, []) is w


class TestCatalogue:
    def test_a_models_home_alone_says_what_it_takes(self):
        w = world(replace(model(A, node=NodeId("other")), footprint_bytes=7), model(B))
        found = with_catalogue(w, NODE, [A, B], {}, {A: 100, B: 100})
        assert found.models[A].footprint_bytes == 7

    def test_measured_ones_come_with_the_list(self):
        w = world(replace(model(A), footprint_bytes=None))
        found = with_catalogue(w, NODE, [A], {}, {A: 20}, measured={A: {PlaceId(""): estimate(30)}})
        assert found.models[A].footprint_bytes == 30
        assert found.models[A].footprint_source is MEASURED
