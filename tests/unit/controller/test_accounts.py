from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import LoadCause, ModelLoaded, ModelLoadFailed, ModelUnloaded, UnloadCause
from contracts.memory import HOST, FootprintSource, PlaceId, PlaceKind, PlaceStatus, UnseenMemory
from contracts.readings import GpuReading, ProbeReading
from contracts.world import Residency
from controller.accounts import MAX_UNSEEN, OUT_OF_MEMORY_S, UNSEEN_LIMIT_S
from controller.fold import fold
from tests.worlds import NODE, A, B, loaded, model, observed, stamp, unloaded, world

HOT, COLD, LOADING, DRAINING = (
    Residency.HOT, Residency.COLD, Residency.LOADING, Residency.DRAINING,
)  # fmt: skip
ONE, TWO = PlaceId("GPU-1"), PlaceId("GPU-2")
MIB = 1024**2
MEASURED = FootprintSource.MEASURED


def card(total_mb=1000, used_mb=0, uuid=ONE):
    return GpuReading(
        uuid=uuid,
        memory_total_bytes=total_mb * MIB,
        memory_free_bytes=(total_mb - used_mb) * MIB,
    )


def seen(w, at_s, *, used_mb, resident=(), cards=None, **fields):
    cards = (card(used_mb=used_mb),) if cards is None else cards
    event = observed(at_s, *resident, used_mb=used_mb, total_mb=1000)
    reading = ProbeReading(at_s=at_s, gpus=cards)
    return fold(w, replace(event, reading=reading, **fields))


def node(w):
    return w.nodes[NODE]


def gone(at_s, *, seen=True, freed_mb=None, name=A):
    return replace(
        unloaded(name, at_s),
        memory_seen=seen,
        freed_bytes=None if freed_mb is None else freed_mb * MIB,
    )


class TestPolls:
    def test_what_others_use_of_each_place(self):
        w = seen(world(model(A, HOT, mb=300), mb=1000), 200.0, used_mb=500, resident=(A,))
        assert node(w).used_by_others_bytes == 200 * MIB
        (place,) = node(w).places
        assert (place.place, place.kind) == (ONE, PlaceKind.GPU)
        assert place.used_by_others_bytes == 200 * MIB

    def test_while_a_model_leaves_others_are_what_they_were(self):
        w = seen(world(model(A, HOT, mb=300), mb=1000), 200.0, used_mb=500, resident=(A,))
        leaving = replace(w.models[A], residency=DRAINING)
        w = replace(w, models={A: leaving})
        # its process has ended, LocalAI has not answered yet
        w = seen(w, 201.0, used_mb=200, resident=(A,))
        assert node(w).used_by_others_bytes == 200 * MIB

    def test_models_on_several_cards_that_nobody_measured_are_guessed(self):
        w = world(model(A, HOT, mb=300), mb=1000)
        cards = (card(500, 200, ONE), card(500, 100, TWO))
        w = seen(w, 200.0, used_mb=300, resident=(A,), cards=cards)
        assert w.models[A].split == {ONE: 200 * MIB, TWO: 100 * MIB}
        assert w.models[A].footprint_source is None


class TestUnloads:
    def hot(self, **fields):
        w = world(model(A, HOT, mb=300, **fields), mb=1000)
        return seen(w, 200.0, used_mb=500, resident=(A,))

    def test_memory_that_is_not_seen_counts_as_used_by_others(self):
        w = fold(self.hot(), gone(210.0, seen=False, freed_mb=100))
        assert w.models[A].residency is COLD
        assert node(w).used_by_others_bytes == 400 * MIB
        assert node(w).places[0].used_by_others_bytes == 400 * MIB
        assert node(w).unseen == (
            UnseenMemory(model=A, held_bytes=200 * MIB, since_s=210.0, others_bytes=200 * MIB),
        )

    def test_until_it_is_seen(self):
        w = fold(self.hot(), gone(210.0, seen=False))
        w = seen(w, 215.0, used_mb=500)
        assert node(w).unseen[0].held_bytes == 300 * MIB
        w = seen(w, 220.0, used_mb=350)
        assert node(w).unseen[0].held_bytes == 150 * MIB
        w = seen(w, 225.0, used_mb=210)
        assert node(w).unseen == ()
        assert node(w).leaked_bytes == 0

    def test_or_it_is_given_up(self):
        w = fold(self.hot(), gone(210.0, seen=False))
        w = seen(w, 210.0 + UNSEEN_LIMIT_S, used_mb=500)
        assert node(w).unseen == ()
        assert node(w).leaked_bytes == 300 * MIB
        assert node(w).used_by_others_bytes == 500 * MIB

    def test_nothing_is_held_of_a_model_whose_size_nobody_knows(self):
        w = world(model(A, HOT, mb=None), mb=1000)
        w = fold(w, gone(210.0, seen=False))
        assert node(w).unseen == ()
        w = fold(self.hot(), gone(210.0, seen=False, freed_mb=300))
        assert node(w).unseen == ()

    def test_a_model_on_the_host_holds_host_ram_alone(self):
        places = (
            PlaceStatus(place=ONE, kind=PlaceKind.GPU),
            PlaceStatus(place=HOST, kind=PlaceKind.HOST),
        )
        w = world(model(A, HOT, mb=300, on_host=True), mb=1000)
        w = replace(w, nodes={NODE: replace(node(w), places=places)})
        w = fold(w, gone(210.0, seen=False))
        assert node(w).used_by_others_bytes == 0
        assert [p.used_by_others_bytes for p in node(w).places] == [0, 300 * MIB]
        assert node(w).unseen == ()

    def test_how_many_are_remembered_is_bounded(self):
        old = UnseenMemory(model=B, held_bytes=1, since_s=1.0, others_bytes=0)
        w = self.hot()
        w = replace(w, nodes={NODE: replace(node(w), unseen=(old,) * MAX_UNSEEN)})
        w = fold(w, gone(210.0, seen=False))
        assert len(node(w).unseen) == MAX_UNSEEN
        assert node(w).unseen[-1].model == A

    @pytest.mark.parametrize(
        ("fields", "freed_mb", "leaked_mb"),
        [
            ({"footprint_source": MEASURED}, 200, 100),
            ({"footprint_source": MEASURED}, 350, 0),
            ({"footprint_source": MEASURED}, None, 0),
            ({}, 200, 0),
        ],
    )
    def test_what_an_unload_gives_back_too_little_is_counted(self, fields, freed_mb, leaked_mb):
        w = fold(self.hot(**fields), gone(210.0, freed_mb=freed_mb))
        assert node(w).leaked_bytes == leaked_mb * MIB
        assert node(w).unseen == ()


class TestLoads:
    def failed(self, w, at_s, error="CUDA out of memory", free_mb=None):
        return fold(
            w,
            ModelLoadFailed(
                **stamp(at_s),
                model=A,
                node=NODE,
                cause=LoadCause.DEMAND,
                error=error,
                retry_after_s=10.0,
                free_bytes=None if free_mb is None else free_mb * MIB,
            ),
        )

    def test_one_that_failed_for_memory_is_remembered(self):
        w = self.failed(world(model(A, LOADING), mb=1000), 200.0, free_mb=70)
        status = w.models[A]
        assert status.out_of_memory_bytes == 70 * MIB
        assert status.out_of_memory_until_s == 200.0 + OUT_OF_MEMORY_S

    def test_the_greatest_that_was_free_stands(self):
        w = self.failed(world(model(A, LOADING), mb=1000), 200.0, free_mb=70)
        w = self.failed(w, 300.0, free_mb=50)
        assert w.models[A].out_of_memory_bytes == 70 * MIB

    def test_of_the_last_poll_where_nobody_looked(self):
        w = seen(world(model(A, LOADING), mb=1000), 190.0, used_mb=400)
        assert self.failed(w, 200.0).models[A].out_of_memory_bytes == 600 * MIB
        assert self.failed(world(model(A, LOADING)), 200.0).models[A].out_of_memory_bytes == 0

    def test_other_failures_say_nothing_of_its_size(self):
        w = self.failed(world(model(A, LOADING)), 200.0, error="no such file", free_mb=70)
        assert w.models[A].out_of_memory_bytes is None

    def test_it_is_forgotten_after_a_while(self):
        w = self.failed(world(model(A, LOADING), mb=1000), 200.0, free_mb=70)
        w = seen(w, 200.0 + OUT_OF_MEMORY_S - 1.0, used_mb=0)
        assert w.models[A].out_of_memory_bytes == 70 * MIB
        w = seen(w, 200.0 + OUT_OF_MEMORY_S, used_mb=0)
        assert w.models[A].out_of_memory_bytes is None
        assert w.models[A].out_of_memory_until_s is None

    def test_and_once_it_is_loaded(self):
        w = self.failed(world(model(A, LOADING), mb=1000), 200.0, free_mb=70)
        w = fold(w, loaded(A, 230.0))
        assert w.models[A].out_of_memory_bytes is None

    def test_a_measured_footprint_replaces_what_was_told(self):
        w = seen(world(model(A, LOADING, mb=10), mb=1000), 190.0, used_mb=0)
        event = ModelLoaded(
            **stamp(200.0),
            model=A,
            node=NODE,
            cause=LoadCause.DEMAND,
            load_s=5.0,
            footprint_bytes=30 * MIB,
            split={ONE: 30 * MIB},
        )
        status = fold(w, event).models[A]
        assert (status.footprint_bytes, status.split) == (30 * MIB, {ONE: 30 * MIB})
        assert status.footprint_source is MEASURED

    def test_one_on_the_cpu_is_seen_as_such(self):
        w = seen(world(model(A, LOADING, mb=10), mb=1000), 190.0, used_mb=0)
        event = replace(loaded(A, 200.0), footprint_bytes=30 * MIB, split={HOST: 30 * MIB})
        assert fold(w, event).models[A].on_host


def test_an_unload_that_nobody_ordered_is_no_leak():
    w = world(model(A, HOT, mb=300, footprint_source=MEASURED), mb=1000)
    event = ModelUnloaded(**stamp(200.0), model=A, node=NODE, cause=UnloadCause.EXTERNAL)
    assert fold(w, event).nodes[NODE].leaked_bytes == 0
