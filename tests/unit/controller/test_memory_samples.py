from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.ids import NodeId
from contracts.memory import HOST, PlaceId, PlaceKind, PlaceStatus
from contracts.readings import GpuReading, ProbeReading
from contracts.world import NodeStatus, Residency
from controller.memory import ALL_CARDS
from controller.memory_truth import (
    Sample,
    expected_back,
    free_at,
    freed_bytes,
    growing,
    is_back,
    is_steady,
    measured_split,
    others_move,
    sample_of,
)
from tests.worlds import NODE, A, B, model, world

ONE, TWO = PlaceId("GPU-1"), PlaceId("GPU-2")
MIB = 1024**2
GIB = 1024**3
KINDS = {ONE: PlaceKind.GPU, TWO: PlaceKind.GPU, HOST: PlaceKind.HOST}


def sample(told=None, **used):
    names = {"one": ONE, "two": TWO, "host": HOST, "all": ALL_CARDS}
    held = {names[key]: int(value * GIB) for key, value in used.items()}
    return Sample(
        at_s=1.0,
        used=held,
        kinds={place: KINDS[place] for place in held if place in KINDS},
        told={ONE: int(told * GIB)} if told is not None else {},
    )


def place(name, used_gb=None, total_gb=24):
    return PlaceStatus(
        place=name,
        kind=KINDS[name],
        total_bytes=None if total_gb is None else total_gb * GIB,
        used_bytes=None if used_gb is None else int(used_gb * GIB),
    )


class TestSample:
    def test_of_places(self):
        node = NodeStatus(
            node=NODE,
            alive=True,
            seen_at_s=5.0,
            places=(place(ONE, 3), place(TWO)),
            memory_used_bytes=99,
            reading=ProbeReading(
                at_s=5.0,
                gpus=(
                    GpuReading(uuid="GPU-1", used_by_others_bytes=7),
                    GpuReading(uuid="GPU-2"),
                ),
            ),
        )
        found = sample_of(node)
        assert found is not None
        assert (found.at_s, found.used, found.told) == (5.0, {ONE: 3 * GIB}, {ONE: 7})

    def test_of_the_one_number(self):
        node = NodeStatus(node=NODE, alive=True, seen_at_s=5.0, memory_used_bytes=99)
        found = sample_of(node)
        assert found is not None
        assert found.used == {ALL_CARDS: 99}

    @pytest.mark.parametrize(
        "fields", [{"alive": False}, {"seen_at_s": None}, {"memory_used_bytes": None}]
    )
    def test_of_nothing(self, fields):
        node = NodeStatus(node=NODE, alive=True, seen_at_s=5.0, memory_used_bytes=99)
        assert sample_of(replace(node, **fields)) is None


def test_who_keeps_still():
    assert is_steady(sample(one=3.0, host=1.0), sample(one=3.05, host=9.0))
    assert not is_steady(sample(one=3.0), sample(one=3.2))
    assert is_steady(sample(one=20.0), sample(one=20.3)), "two in a hundred"
    assert is_steady(sample(), sample(one=3.0))


class TestMeasured:
    def test_what_grew_between_two_looks(self):
        found = measured_split(sample(one=1.0, two=0.5, host=8), sample(one=7, two=0.52, host=9))
        assert found == {ONE: 6 * GIB, HOST: GIB}

    def test_small_changes_are_nobodys(self):
        before, after = sample(one=1.0, host=8.0), sample(one=1.01, host=8.3)
        assert measured_split(before, after) is None

    def test_a_machine_without_cards_has_small_models_too(self):
        assert measured_split(sample(host=8.0), sample(host=8.25)) == {HOST: GIB // 4}
        assert measured_split(sample(host=8.0), sample(host=8.01)) is None
        assert measured_split(sample(all=0), sample(all=0.001)) == {ALL_CARDS: int(0.001 * GIB)}

    def test_nothing_where_memory_went_meanwhile(self):
        assert measured_split(sample(one=5.0, two=5.0), sample(one=8.0, two=3.0)) is None

    def test_nothing_where_others_are_seen_to_move(self):
        assert measured_split(sample(one=5.0, told=1), sample(one=9.0, told=3)) is None
        assert measured_split(sample(one=5.0, told=1), sample(one=9.0, told=1)) is not None
        assert measured_split(sample(one=5.0), sample(one=9.0, told=1)) is not None

    def test_nothing_where_other_places_are_told(self):
        assert measured_split(sample(one=5.0), sample(one=9.0, two=0.0)) is None


class TestBack:
    def test_where_it_was(self):
        node = NodeStatus(node=NODE, places=(place(ONE), place(HOST)))
        status = replace(model(A), footprint_bytes=10, split={ONE: 10, HOST: 2})
        assert expected_back(status, node) == {ONE: 10, HOST: 2}
        assert expected_back(replace(status, split={}), node) == {ONE: 10}

    def test_of_the_one_number(self):
        node = NodeStatus(node=NODE)
        assert expected_back(replace(model(A), footprint_bytes=10), node) == {ALL_CARDS: 10}
        assert expected_back(replace(model(A), footprint_bytes=None), node) == {}
        cuda = replace(node, accelerator="cuda")
        assert expected_back(replace(model(A), footprint_bytes=10, on_host=True), cuda) == {}

    def test_nobody_knows_where_on_several_cards(self):
        node = NodeStatus(node=NODE, places=(place(ONE), place(TWO)))
        assert expected_back(replace(model(A), footprint_bytes=10), node) == {}

    def test_half_of_it_has_to_be_seen_at_each_place(self):
        size = {ONE: 10 * GIB, TWO: 4 * GIB}
        before = sample(one=20, two=10)
        assert is_back(before, sample(one=15, two=8), size, {})
        assert not is_back(before, sample(one=10, two=9), size, {})
        assert is_back(before, sample(one=10, two=9), size, {TWO: 2 * GIB})
        assert is_back(before, sample(one=10), size, {}), "what is not told is not asked for"

    def test_how_much_is_free_again(self):
        size = {ONE: 10 * GIB}
        assert freed_bytes(sample(one=20), sample(one=12), size) == 8 * GIB
        assert freed_bytes(sample(two=20), sample(two=12), size) is None


class TestBeside:
    def test_who_moves(self):
        loading, draining = Residency.LOADING, Residency.DRAINING
        status = model(A)
        assert not others_move(world(status, model(B)), status, ())
        assert not others_move(world(model(A, loading)), status, (A,))
        assert others_move(world(status, model(B, draining)), status, ())
        assert others_move(world(status, model(B, loading)), status, (B,))
        assert not others_move(world(status, model(B, loading)), status, ()), "it has not begun"
        w = world(status, model(B, draining, node=NodeId("other")))
        assert not others_move(w, status, ())

    def test_what_loads_may_take_meanwhile(self):
        status = model(A)
        other = replace(model(B, Residency.LOADING), footprint_bytes=7)
        assert growing(world(status, other), status, (B,)) == {ALL_CARDS: 7}
        assert growing(world(status, other), status, ()) == {}
        assert growing(world(status, replace(other, residency=Residency.HOT)), status, (B,)) == {}
        unknown = replace(other, footprint_bytes=None)
        assert growing(world(status, unknown), status, (B,)) == {ALL_CARDS: 0}
        lost = replace(world(status, other), nodes={})
        assert growing(lost, status, (B,)) == {}


def test_what_is_free_for_a_load():
    status = replace(model(A), footprint_bytes=10)
    node = NodeStatus(node=NODE, places=(place(ONE, 20), place(HOST, 1)))
    assert free_at(node, status) == 4 * GIB
    node = NodeStatus(node=NODE, memory_total_bytes=100, memory_used_bytes=30)
    assert free_at(node, status) == 70
    assert free_at(replace(node, memory_used_bytes=None), status) is None
    assert free_at(replace(node, memory_total_bytes=None), status) is None
    node = replace(node, places=(place(ONE), place(TWO, 3, None)))
    assert free_at(node, replace(status, split={ONE: 5, TWO: 5})) == 70
