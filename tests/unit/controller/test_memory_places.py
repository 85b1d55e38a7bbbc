"""The budget as a vector: every place that a model takes must have room."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import PlannerConfig
from contracts.groups import GroupConfig
from contracts.memory import HOST, FootprintSource, PlaceId, PlaceKind, PlaceStatus
from contracts.reasons import Reason
from contracts.world import Residency
from controller.eviction import choose_for, names, pick_places
from controller.memory import ALL_CARDS, gpu_bytes, host_bytes, place_usable_bytes, room
from controller.policies.base import Victim
from tests.worlds import NODE, A, B, C, D, model, world

HOT, COLD, LOADING = Residency.HOT, Residency.COLD, Residency.LOADING
ONE, TWO = PlaceId("GPU-1"), PlaceId("GPU-2")
MEASURED = FootprintSource.MEASURED


def place(name=ONE, total=100, *, others=0, kind=PlaceKind.GPU):
    return PlaceStatus(
        place=name, kind=kind, total_bytes=total, used_by_others_bytes=others, used_bytes=others
    )


TWO_CARDS = (place(ONE), place(TWO), place(HOST, 1000, kind=PlaceKind.HOST))


def sized(name, residency=COLD, *, split=None, size=None, **fields):
    split = split or {}
    cards = sum(held for where, held in split.items() if where != HOST)
    size = (cards or sum(split.values()) or None) if size is None else size
    return replace(model(name, residency), footprint_bytes=size, split=split, **fields)


def a_world(*models, places=TWO_CARDS, total=None, **node):
    w = world(*models, mb=None)
    cards = [p.total_bytes for p in places if p.kind is not PlaceKind.HOST]
    total = total if total is not None else sum(cards) or places[0].total_bytes
    here = replace(w.nodes[NODE], places=places, memory_total_bytes=total, **node)
    return replace(w, nodes={NODE: here})


def a_room(*models, config=None, **fields):
    config = PlannerConfig(reserve_ratio=0.0) if config is None else config
    return room(a_world(*models, **fields), NODE, config)


class TestRoom:
    def test_what_each_place_holds(self):
        here = a_room(
            sized(A, HOT, split={ONE: 60, HOST: 5}),
            sized(B, LOADING, split={ONE: 10, TWO: 10}),
            sized(C, COLD, split={TWO: 50}),
        )
        assert [(p.place, p.usable_bytes, p.occupied_bytes) for p in here.places] == [
            (ONE, 100, 70),
            (TWO, 100, 10),
            (HOST, 1000, 5),
        ]
        assert (here.usable_bytes, here.occupied_bytes) == (200, 80)

    def test_a_model_fits_if_every_place_fits(self):
        here = a_room(sized(A, HOT, split={ONE: 60}))
        assert here.shortage(sized(B, split={TWO: 100})) == {}
        assert here.shortage(sized(B, split={ONE: 50})) == {ONE: 10}
        assert here.shortage(sized(B, split={ONE: 50, TWO: 110})) == {ONE: 10, TWO: 10, "": 20}

    def test_one_that_is_not_told_by_place_is_bounded_by_all_cards(self):
        here = a_room(sized(A, HOT, split={ONE: 60}))
        assert here.shortage(sized(B, size=140)) == {}
        assert here.shortage(sized(B, size=141)) == {ALL_CARDS: 1}

    def test_the_configured_bound_holds_for_all_cards_together(self):
        here = a_room(
            sized(A, HOT, split={ONE: 60}),
            config=PlannerConfig(reserve_ratio=0.0, budget_bytes=100),
        )
        assert here.shortage(sized(B, split={TWO: 50})) == {ALL_CARDS: 10}

    def test_host_ram_is_a_budget_of_its_own(self):
        here = a_room(
            sized(A, HOT, split={ONE: 60}),
            sized(B, HOT, split={HOST: 900}, on_host=True),
            config=PlannerConfig(reserve_ratio=0.0, host_budget_bytes=950),
        )
        assert here.occupied_bytes == 60, "a model on the host takes none of the cards"
        assert here.shortage(sized(C, size=40, on_host=True)) == {}
        assert here.shortage(sized(C, size=60, on_host=True)) == {HOST: 10}
        assert here.main_need(sized(C, size=60, on_host=True)) == 0

    def test_a_host_that_is_not_told_bounds_no_model_on_it(self):
        here = a_room(places=(place(ONE),))
        assert here.shortage(sized(C, size=10_000, on_host=True)) == {}

    def test_what_can_never_fit(self):
        here = a_room(sized(A, HOT, split={ONE: 60}))
        assert not here.can_never_hold(sized(B, split={ONE: 100}))
        assert here.can_never_hold(sized(B, split={ONE: 101}))
        assert here.can_never_hold(sized(B, size=201))
        assert not here.can_never_hold(sized(B, size=200))

    def test_one_that_failed_for_memory_needs_more_than_was_free(self):
        failed = sized(B, split={ONE: 40}, out_of_memory_bytes=80)
        assert failed.needed_bytes == 85
        assert a_room().shortage(failed) == {}
        assert a_room(sized(A, HOT, split={ONE: 20})).shortage(failed) == {ONE: 5}
        assert sized(B, size=None, out_of_memory_bytes=80).needed_bytes == 85
        assert sized(B, size=90, out_of_memory_bytes=0).needed_bytes == 90

    def test_without_a_budget_one_goes_for_a_load_that_failed_for_memory(self):
        w = world(model(A, HOT), model(B), mb=None)
        here = room(w, NODE, PlannerConfig())
        assert here.slots_short(w.models[B]) == 0
        failed = replace(w.models[B], out_of_memory_bytes=0)
        assert here.slots_short(failed) == 1
        assert room(world(model(B), mb=None), NODE, PlannerConfig()).slots_short(failed) == 0

    def test_what_an_unload_frees(self):
        here = a_room()
        assert here.freed(sized(A, HOT, split={ONE: 60, HOST: 5})) == {ONE: 60, HOST: 5, "": 60}
        assert here.freed(sized(A, HOT, size=5, on_host=True)) == {HOST: 5}
        assert here.freed(sized(A, COLD, split={ONE: 60})) == {}


class TestLoadsAtOnce:
    def test_models_that_were_measured_may_load_side_by_side(self):
        here = a_room()
        one = sized(A, LOADING, split={ONE: 10}, footprint_source=MEASURED)
        two = sized(B, split={ONE: 10}, footprint_source=MEASURED)
        assert not here.disturbs(two, [one])
        assert here.disturbs(replace(two, footprint_source=None), [one])
        assert here.disturbs(two, [replace(one, footprint_source=None)])

    def test_on_different_cards_any_may(self):
        here = a_room()
        one = sized(A, LOADING, split={ONE: 10})
        assert not here.disturbs(sized(B, split={TWO: 10}), [one])
        assert here.disturbs(sized(B, size=10), [one])
        assert here.disturbs(one, [sized(B, LOADING, size=10)])

    def test_where_no_place_is_told_nothing_is_measured(self):
        w = world(model(A, LOADING), model(B))
        here = room(w, NODE, PlannerConfig())
        assert not here.disturbs(w.models[B], [w.models[A]])


class TestUsable:
    def test_less_what_others_use_and_the_reserve(self):
        config = PlannerConfig(reserve_ratio=0.2)
        assert place_usable_bytes(place(total=100, others=50), config) == 40
        assert place_usable_bytes(place(total=100, others=150), config) == 0

    @pytest.mark.parametrize("kind", [PlaceKind.HOST, PlaceKind.UNIFIED])
    def test_the_bound_of_host_ram(self, kind):
        config = PlannerConfig(reserve_ratio=0.0, host_budget_bytes=30)
        assert place_usable_bytes(place(total=100, kind=kind), config) == 30
        assert place_usable_bytes(place(total=20, kind=kind), config) == 20
        assert place_usable_bytes(place(total=None, kind=kind), config) == 30
        assert place_usable_bytes(place(total=None), config) is None


class TestBytesOfAModel:
    def test_on_a_node_whose_places_are_told(self):
        node = a_world().nodes[NODE]
        assert gpu_bytes(sized(A, split={ONE: 60, HOST: 5}), node) == 60
        assert host_bytes(sized(A, split={ONE: 60, HOST: 5}), node) == 5
        assert gpu_bytes(sized(A, size=60), node) == 60
        assert host_bytes(sized(A, size=60), node) == 0
        assert gpu_bytes(sized(A, size=60, on_host=True), node) == 0
        assert host_bytes(sized(A, size=60, on_host=True), node) == 60
        assert gpu_bytes(sized(A), node) == 0
        assert gpu_bytes(replace(sized(A), on_host=True), node) == 0

    def test_on_one_whose_are_not(self):
        node = replace(world(model(A)).nodes[NODE], accelerator="cuda")
        assert gpu_bytes(sized(A, size=60), node) == 60
        assert host_bytes(sized(A, size=60), node) == 0
        assert gpu_bytes(sized(A, size=60, on_host=True), node) == 0
        assert host_bytes(sized(A, size=60, on_host=True), node) == 60
        assert gpu_bytes(sized(A), node) == 0
        assert host_bytes(replace(sized(A), on_host=True), node) == 0


def victims(*named, losses=None):
    losses = losses or {}
    return tuple(
        Victim(
            model=status.model,
            freed_bytes=status.occupied_bytes,
            loss=losses.get(status.model, 0.0),
            reason=Reason.LEAST_RECENTLY_USED,
        )
        for status in named
    )


class TestVictims:
    def chosen(self, wanted, *held, whole_set=True, losses=None, **fields):
        here = a_room(*held, **fields)
        models = {status.model: status for status in held}
        found = choose_for(wanted, victims(*held, losses=losses), here, models, whole_set=whole_set)
        return None if found is None else names(found)

    def test_only_who_frees_what_is_missing_goes(self):
        held = (sized(A, HOT, split={TWO: 90}), sized(B, HOT, split={ONE: 90}))
        assert self.chosen(sized(C, split={ONE: 50}), *held) == (B,)

    def test_as_many_as_it_takes_on_every_card(self):
        held = (sized(A, HOT, split={TWO: 90}), sized(B, HOT, split={ONE: 90}))
        assert self.chosen(sized(C, split={ONE: 50, TWO: 50}), *held) == (A, B)

    def test_none_at_all_where_one_card_stays_too_full(self):
        held = (sized(A, HOT, split={TWO: 90}),)
        places = (place(ONE, others=60), place(TWO))
        assert self.chosen(sized(C, split={ONE: 50, TWO: 50}), *held, places=places) is None

    def test_who_turned_out_not_to_be_needed_stays(self):
        held = (
            sized(A, HOT, split={ONE: 10}),
            sized(B, HOT, split={ONE: 80}),
        )
        wanted = sized(C, split={ONE: 70, TWO: 1})
        assert self.chosen(wanted, *held, losses={A: 1.0}) == (B,)
        assert self.chosen(wanted, *held, whole_set=False) == (A, B)

    def test_a_gpu_model_does_not_go_for_one_on_the_host(self):
        held = (sized(A, HOT, split={ONE: 90}), sized(B, HOT, size=900, on_host=True))
        assert self.chosen(sized(C, size=500, on_host=True), *held) == (B,)

    def test_nor_one_on_the_host_for_a_gpu_model(self):
        held = (sized(B, HOT, size=900, on_host=True), sized(A, HOT, size=190))
        assert self.chosen(sized(C, size=50), *held) == (A,)

    def test_places_in_a_model_limit_count_too(self):
        assert pick_places([{ONE: 1}, {TWO: 1}], [0.0, 0.0], {TWO: 1}, 2) == [0, 1]
        assert pick_places([{ONE: 1}, {TWO: 1}], [0.0, 0.0], {TWO: 1}, 3) is None
        assert pick_places([{ONE: 1}, {TWO: 1}], [0.0, 0.0], {}, 0) == []


def test_a_groups_share_is_one_more_bound():
    group = GroupConfig(name="text", memory_bytes=50)
    config = PlannerConfig(reserve_ratio=0.0, groups={"text": group})
    here = a_room(sized(A, HOT, split={ONE: 40}, group="text"), config=config)
    assert list(here.shortage(sized(B, split={TWO: 20}, group="text")).values()) == [10]
    assert here.shortage(sized(D, split={TWO: 20})) == {}
    assert here.can_never_hold(sized(B, split={TWO: 60}, group="text"))
    assert not here.can_never_hold(sized(B, split={TWO: 50}, group="text"))


@pytest.mark.case("P027")
def test_models_that_exclude_each_other_are_never_resident_together():
    """The small one is left alone, though it was used longest ago and there is room for all."""
    small = sized(A, HOT, split={ONE: 1})
    heavy = sized(B, HOT, split={TWO: 10}, exclusive=("heavy",))
    other = sized(C, split={ONE: 10}, exclusive=("heavy", "loud"))
    here = a_room(small, heavy)
    assert here.shortage(other) == {"alone:heavy": 1}
    assert here.shortage(sized(D, split={ONE: 10}, exclusive=("loud",))) == {}
    found = choose_for(other, victims(small, heavy), here, {A: small, B: heavy})
    assert found is not None
    assert names(found) == (B,)
