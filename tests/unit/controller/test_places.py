from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.memory import HOST, PlaceId, PlaceKind, PlaceStatus
from contracts.readings import GpuReading, ProbeReading
from contracts.world import NodeStatus, Residency
from controller.places import (
    guessed_splits,
    main_others,
    read_places,
    split_on,
    takes_main_memory,
    used_by_others,
    with_others,
)
from tests.worlds import NODE, A, B, C, model

HOT, LOADING, COLD = Residency.HOT, Residency.LOADING, Residency.COLD
ONE, TWO = PlaceId("GPU-1"), PlaceId("GPU-2")


def place(name=ONE, kind=PlaceKind.GPU, total=100, used=0, others=0):
    return PlaceStatus(
        place=name, kind=kind, total_bytes=total, used_bytes=used, used_by_others_bytes=others
    )


CARD = (place(),)
CARDS = (place(ONE), place(TWO), place(HOST, PlaceKind.HOST))
CPU = (place(HOST, PlaceKind.HOST),)
UNIFIED = (place(ONE, PlaceKind.UNIFIED),)


def sized(name=A, residency=HOT, size=10, **fields):
    return replace(model(name, residency), footprint_bytes=size, **fields)


def reading(*gpus, **host):
    return ProbeReading(at_s=1.0, gpus=gpus, **host)


class TestReading:
    def test_nothing_told(self):
        assert read_places(None) == ()
        assert read_places(reading()) == ()

    def test_cards_and_host(self):
        found = read_places(
            reading(
                GpuReading(uuid="GPU-1", memory_total_bytes=100, memory_free_bytes=60),
                GpuReading(uuid="GPU-2", memory_total_bytes=50, memory_used_bytes=5),
                GpuReading(uuid="GPU-3"),
                host_memory_total_bytes=1000,
                host_memory_used_bytes=900,
                host_memory_available_bytes=700,
            )
        )
        assert [(p.place, p.kind, p.total_bytes, p.used_bytes) for p in found] == [
            (ONE, PlaceKind.GPU, 100, 40),
            (TWO, PlaceKind.GPU, 50, 5),
            (HOST, PlaceKind.HOST, 1000, 300),
        ]

    def test_host_without_what_is_available(self):
        (host,) = read_places(reading(host_memory_total_bytes=10, host_memory_used_bytes=4))
        assert (host.place, host.used_bytes) == (HOST, 4)

    def test_instances_stand_for_the_card_that_they_are_cut_from(self):
        found = read_places(
            reading(
                GpuReading(uuid="GPU-1", memory_total_bytes=100),
                GpuReading(uuid="MIG-a", parent_uuid="GPU-1", memory_total_bytes=40),
                GpuReading(uuid="MIG-b", parent_uuid="GPU-1", memory_total_bytes=40),
            )
        )
        assert [p.place for p in found] == ["MIG-a", "MIG-b"]

    def test_unified_memory_is_one_place(self):
        found = read_places(
            reading(
                GpuReading(uuid="GPU-1", is_unified=True, memory_total_bytes=100),
                host_memory_total_bytes=100,
            )
        )
        assert [(p.place, p.kind) for p in found] == [(ONE, PlaceKind.UNIFIED)]


class TestSplit:
    @pytest.mark.parametrize(
        ("status", "places", "split"),
        [
            (sized(), (), {}),
            (sized(), CARD, {ONE: 10}),
            (sized(), CPU, {HOST: 10}),
            (sized(), UNIFIED, {ONE: 10}),
            (sized(), CARDS, {}),
            (sized(size=None), CARD, {}),
            (sized(on_host=True), CARDS, {HOST: 10}),
            (sized(on_host=True), UNIFIED, {ONE: 10}),
            (sized(on_host=True), CARD, {}),
            (sized(split={ONE: 6, HOST: 2}), CARDS, {ONE: 6, HOST: 2}),
            (sized(split={ONE: 6, HOST: 2}), UNIFIED, {ONE: 8}),
            (sized(split={ONE: 6, HOST: 2}), CARD, {ONE: 6}),
            (sized(split={TWO: 6, HOST: 2}), CARD, {ONE: 10}),
            (sized(split={PlaceId("GPU-9"): 6}), CARDS, {}),
            (sized(split={HOST: 2}), CARD, {ONE: 10}),
        ],
    )
    def test_by_what_is_told(self, status, places, split):
        assert split_on(status, places) == split


class TestMainMemory:
    def node(self, *places, accelerator=""):
        return NodeStatus(node=NODE, places=places, accelerator=accelerator)

    def test_a_model_on_the_host_takes_none_of_the_cards(self):
        assert takes_main_memory(sized(), self.node(*CARDS))
        assert not takes_main_memory(sized(on_host=True), self.node(*CARDS))
        assert takes_main_memory(sized(on_host=True), self.node(*CPU))
        assert takes_main_memory(sized(on_host=True), self.node(*UNIFIED))

    def test_by_the_kind_of_node_where_no_place_is_told(self):
        assert takes_main_memory(sized(on_host=True), self.node())
        assert takes_main_memory(sized(on_host=True), self.node(accelerator="cpu"))
        assert not takes_main_memory(sized(on_host=True), self.node(accelerator="cuda"))


class TestOthers:
    def test_what_is_not_ours(self):
        assert used_by_others(None, 7, 0, 0) == 0
        assert used_by_others(30, 0, 20, 20) == 10
        assert used_by_others(10, 0, 20, 20) == 0

    @pytest.mark.parametrize(
        ("used", "before", "others"),
        [
            (4, 4, 4),  # its process has ended already
            (14, 4, 4),  # it has not
            (3, 4, 3),  # others went too
            (20, 4, 10),  # others came
            (12, 0, 2),  # nothing certain was known
        ],
    )
    def test_between_two_bounds_the_last_certain_figure_stands(self, used, before, others):
        """A model of 10 is on its way out."""
        assert used_by_others(used, before, ours=10, settled=0) == others

    def test_of_the_one_number(self):
        node = NodeStatus(node=NODE, used_by_others_bytes=3, places=CARDS)
        models = (sized(A), sized(B, on_host=True), sized(C, LOADING))
        assert main_others(node, models, 15, None) == 3
        assert main_others(node, models, 30, None) == 10
        assert main_others(node, models, 15, 1) == 1

    def test_of_each_place(self):
        now = (place(ONE, used=14), place(TWO, used=9), place(HOST, PlaceKind.HOST, used=5))
        models = (
            sized(A, split={ONE: 10}),
            sized(B, COLD, split={TWO: 9}),
            sized(C, LOADING, split={TWO: 4}),
        )
        told = reading(GpuReading(uuid="GPU-1"), GpuReading(uuid="GPU-2", used_by_others_bytes=6))
        before = (place(TWO, others=7),)
        assert [p.used_by_others_bytes for p in with_others(before, now, models, None)] == [4, 7, 5]
        assert [p.used_by_others_bytes for p in with_others(before, now, models, told)] == [4, 6, 5]


class TestGuess:
    def test_shared_out_by_what_is_used_on_each_card(self):
        places = (place(ONE, used=40), place(TWO, used=20), place(HOST, PlaceKind.HOST, used=9))
        models = (
            sized(A, size=30),
            sized(B, size=10, split={ONE: 10}),
            sized(C, size=5, on_host=True),
        )
        assert guessed_splits(models, places) == {A: {ONE: 18, TWO: 12}}

    def test_nothing_to_guess(self):
        used = (place(ONE, used=40), place(TWO, used=20))
        assert guessed_splits((sized(A, split={ONE: 40}),), used) == {}
        assert guessed_splits((sized(A, COLD), sized(B, size=None)), used) == {}
        assert guessed_splits((sized(A),), CARD) == {}
        assert guessed_splits((sized(A),), (place(ONE), place(TWO))) == {}

    def test_a_told_host_part_is_nobodys_card(self):
        places = (place(ONE, used=40), place(TWO, used=0), place(HOST, PlaceKind.HOST))
        models = (sized(A, size=30), sized(B, size=10, split={ONE: 10, HOST: 3}), sized(C, COLD))
        assert guessed_splits(models, places) == {A: {ONE: 30}}
