from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.reasons import Reason
from contracts.world import Residency
from controller.eviction import choose_for, idle_models, names
from controller.memory import Room
from controller.policies.base import Victim
from tests.worlds import A, B, C, D, model, world

HOT = Residency.HOT


def idle(*models, **fields):
    w = world(*models, **fields)
    return [status.model for status in idle_models(w, w.on_node(models[0].node))]


class TestIdle:
    def test_hot_with_nothing_to_do(self):
        assert idle(model(A, HOT), model(B, HOT)) == [A, B]

    @pytest.mark.parametrize("residency", [r for r in Residency if r is not HOT])
    def test_not_in_any_other_residency(self, residency):
        assert idle(model(A, residency)) == []

    def test_not_while_it_serves_or_is_waited_for(self):
        waited = model(B, HOT, waiting=1, wanted_since_s=99.0)
        assert idle(model(A, HOT, in_flight=1), waited) == []

    def test_not_when_pinned_or_asked_for(self):
        assert idle(model(A, HOT, pinned=True), model(B, HOT), operator_loads={B}) == []

    def test_not_soon_after_an_unload_was_given_up(self):
        assert idle(model(A, HOT, spared_until_s=100.5), now_s=100.0) == []
        assert idle(model(A, HOT, spared_until_s=100.0), now_s=100.0) == [A]


def victim(name, freed, loss=0.0):
    return Victim(model=name, freed_bytes=freed, loss=loss, reason=Reason.LEAST_RECENTLY_USED)


def chosen(ranked, *, missing=0, slots=0):
    """The victims for a load that misses so many bytes and slots."""
    here = Room(
        usable_bytes=100,
        occupied_bytes=100 + missing - 10,
        residents=5,
        model_limit=6 - slots if slots else None,
        loading=0,
    )
    wanted = replace(model(D), footprint_bytes=10)
    held = {one.model: model(one.model, HOT) for one in ranked}
    found = choose_for(wanted, tuple(ranked), here, held)
    return None if found is None else names(found)


class TestChoose:
    def test_none_where_it_fits(self):
        assert chosen([victim(A, 5)]) == ()

    def test_in_order_until_it_fits(self):
        assert chosen([victim(A, 5), victim(B, 5), victim(C, 5)], missing=6) == (A, B)

    def test_none_at_all_where_all_do_not_suffice(self):
        assert chosen([victim(A, 5), victim(B, 5)], missing=11) is None
        assert chosen([], missing=1) is None

    def test_what_turned_out_not_to_be_needed_is_given_back(self):
        # a goes first, but c is needed anyway and c alone is enough
        assert chosen([victim(A, 3), victim(B, 2), victim(C, 9)], missing=7) == (C,)

    def test_the_greatest_loss_is_given_back_first(self):
        ranked = [victim(A, 5, loss=0.1), victim(B, 5, loss=0.5), victim(C, 6, loss=0.3)]
        assert chosen(ranked, missing=11) == (A, C)

    def test_among_equals_the_last_in_order_is_given_back(self):
        # any two of the three are enough: the two that are first in order go
        assert chosen([victim(A, 4), victim(B, 4), victim(C, 5)], missing=9) == (A, C)
        assert chosen([victim(D, 4), victim(B, 4), victim(C, 5)], missing=9) == (D, C)

    def test_a_full_limit_costs_a_victim_although_bytes_are_free(self):
        assert chosen([victim(A, 5), victim(B, 5)], slots=1) == (A,)
        assert chosen([victim(A, 5), victim(B, 5)], slots=2) == (A, B)
        assert chosen([victim(A, 5)], slots=2) is None

    def test_one_that_frees_nothing_goes_only_for_a_slot(self):
        assert chosen([victim(A, 0), victim(B, 5)], missing=5) == (B,)
        assert chosen([victim(A, 0), victim(B, 5)], slots=1) == (A,)
