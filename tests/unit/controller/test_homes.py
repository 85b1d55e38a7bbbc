"""Which node a model is planned for, where several know it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import ModelProfile
from contracts.events import LoadCause
from contracts.ids import NodeId
from contracts.plan import Outcome
from contracts.reasons import Reason
from contracts.world import NodeStatus, Residency
from controller.homes import decided, rehomed
from tests.worlds import MIB, A, B, C, config, model, world

ONE, TWO, THREE = (NodeId(name) for name in ("one", "two", "three"))
HOT, COLD, FAILED, LOADING = Residency.HOT, Residency.COLD, Residency.FAILED, Residency.LOADING


def node(name, *residents, lists=(A,), mb=30, alive=True, accelerator="cuda"):
    return NodeStatus(
        node=name,
        alive=alive,
        memory_total_bytes=None if mb is None else mb * MIB,
        accelerator=accelerator,
        lists=lists,
        residents=residents,
    )


def at(*nodes, models):
    return replace(world(*models), nodes={each.node: each for each in nodes})


def home_of(w, name=A, profiles=None):
    after, moves = rehomed(w, config(), profiles or {})
    return after.models[name].node, [move.reason for move in moves]


def used(name=A, residency=COLD, **fields):
    """A model with a past: its moves are told."""
    return model(name, residency, node=ONE, used_s=50.0, **fields)


def test_one_node_is_every_models_home():
    w = at(node(ONE), models=[used()])
    assert rehomed(w, config(), {}) == (w, ())


def test_a_model_that_one_node_knows_stays():
    w = at(node(ONE), node(TWO, lists=()), models=[used()])
    assert home_of(w) == (ONE, [])


def test_names_that_no_model_has_yet_are_passed_over():
    w = at(node(ONE), node(TWO, lists=(A, B)), models=[used()])
    assert home_of(w) == (ONE, [])


class TestLost:
    @pytest.mark.parametrize("residency", [HOT, COLD, FAILED, LOADING])
    def test_a_lost_home_is_left(self, residency):
        w = at(node(ONE, alive=False), node(TWO), models=[used(A, residency)])
        after, (move,) = rehomed(w, config(), {})
        assert (after.models[A].node, after.models[A].residency) == (TWO, COLD)
        assert (move.before, move.after, move.reason) == (ONE, TWO, Reason.NODE_LOST)

    def test_for_where_it_is_resident(self):
        nodes = [node(ONE, alive=False), node(TWO), node(THREE, A, mb=10)]
        after, _ = rehomed(at(*nodes, models=[used(A, HOT)]), config(), {})
        assert (after.models[A].node, after.models[A].residency) == (THREE, HOT)

    def test_a_cool_down_there_is_left_behind(self):
        w = at(
            node(ONE, alive=False),
            node(TWO),
            models=[used(A, FAILED, cooldown_until_s=999.0, failure="broken")],
        )
        status = rehomed(w, config(), {})[0].models[A]
        assert (status.cooldown_until_s, status.failure) == (None, "")

    def test_without_another_node_it_stays(self):
        w = at(node(ONE, alive=False), node(TWO, alive=False), models=[used(A, HOT)])
        assert home_of(w) == (ONE, [])

    def test_a_node_that_is_unknown_is_lost(self):
        assert home_of(at(node(TWO), node(THREE), models=[used()])) == (THREE, [Reason.NODE_LOST])

    def test_a_home_that_lists_it_no_more_is_left_once_nothing_is_there(self):
        nodes = node(ONE, lists=()), node(TWO)
        assert home_of(at(*nodes, models=[used()])) == (TWO, [Reason.NODE_LOST])
        assert home_of(at(*nodes, models=[used(A, HOT)])) == (ONE, [])


class TestResident:
    def test_where_it_is_resident_is_its_home(self):
        after, (move,) = rehomed(at(node(ONE), node(TWO, A), models=[used()]), config(), {})
        assert (after.models[A].node, after.models[A].residency) == (TWO, HOT)
        assert after.models[A].residency_since_s == after.taken_at_s
        assert move.reason is Reason.RESIDENT

    def test_a_second_copy_changes_nothing(self):
        w = at(node(ONE, A), node(TWO, A), models=[used(A, HOT)])
        assert home_of(w) == (ONE, [])
        # just unloaded there: the last poll still shows it
        assert home_of(at(node(ONE, A), node(TWO, A), models=[used()])) == (ONE, [])

    def test_a_copy_on_a_cpu_does_not_draw_its_home_away_from_a_gpu(self):
        w = at(node(ONE), node(TWO, A, accelerator="cpu"), models=[used()])
        assert home_of(w) == (ONE, [])
        w = at(node(ONE, mb=5), node(TWO, A, accelerator="cpu"), models=[used()])
        assert home_of(w) == (TWO, [Reason.RESIDENT])

    def test_a_failure_is_no_reason_to_try_elsewhere(self):
        w = at(node(ONE, mb=5), node(TWO), models=[used(A, FAILED)])
        assert home_of(w) == (ONE, [])


class TestBetter:
    def test_room_without_an_eviction(self):
        other = model(B, HOT, node=ONE, mb=25)
        w = at(node(ONE, lists=(A, B)), node(TWO), models=[used(), other])
        assert home_of(w) == (TWO, [Reason.NO_ROOM])

    def test_of_equals_the_home_stays(self):
        w = at(node(ONE), node(TWO, mb=300), models=[used()])
        assert home_of(w) == (ONE, [])

    def test_a_node_that_is_too_small_for_good_comes_last(self):
        w = at(node(ONE, mb=5), node(TWO, accelerator="cpu"), models=[used()])
        assert home_of(w) == (TWO, [Reason.NO_ROOM])

    def test_a_gpu_before_a_cpu_even_where_something_has_to_go(self):
        other = model(B, HOT, node=ONE, mb=25)
        w = at(node(ONE, lists=(A, B)), node(TWO, accelerator="cpu"), models=[used(), other])
        assert home_of(w) == (ONE, [])
        w = at(node(ONE, accelerator="cpu"), node(TWO), models=[used()])
        assert home_of(w) == (TWO, [Reason.NO_ROOM])

    def test_a_preferred_accelerator_before_all(self):
        w = at(node(ONE), node(TWO, accelerator="cpu"), models=[used()])
        profiles = {A: ModelProfile(model=A, preferred_backend="cpu")}
        assert home_of(w, profiles=profiles) == (TWO, [Reason.NO_ROOM])

    def test_unknown_sizes_and_budgets_fit(self):
        nodes = node(ONE, mb=None), node(TWO, mb=None)
        assert home_of(at(*nodes, models=[used(mb=None)])) == (ONE, [])


class TestFresh:
    def test_what_was_never_loaded_goes_where_most_is_free_and_untold(self):
        fresh = model(A, node=ONE)
        assert home_of(at(node(ONE), node(TWO, mb=41), models=[fresh])) == (TWO, [])
        assert home_of(at(node(ONE), node(TWO, mb=40), models=[fresh])) == (ONE, [])
        assert home_of(at(node(ONE), node(TWO, mb=None), models=[fresh])) == (ONE, [])

    def test_a_poll_still_says_where_it_is(self):
        fresh = model(A, node=ONE)
        after, _ = rehomed(at(node(ONE), node(TWO, mb=90), models=[fresh]), config(), {})
        assert after.models[A].residency_since_s == 0.0

    def test_one_that_was_loaded_once_stays(self):
        loaded = model(A, node=ONE, load_cause=LoadCause.PREFETCH)
        assert home_of(at(node(ONE), node(TWO, mb=90), models=[loaded])) == (ONE, [])


def test_moves_are_decisions():
    w = at(
        node(ONE, alive=False, lists=(A, C)),
        node(TWO, lists=(A, C)),
        models=[used(A), used(C)],
    )
    _, moves = rehomed(w, config(), {})
    first, second = decided(moves, 7, 100.0)
    assert (first.subject, first.outcome, first.reason) == (A, Outcome.CHANGE, Reason.NODE_LOST)
    assert first.evidence == (("from", ONE), ("to", TWO))
    assert (first.decision_id, second.decision_id) == ("d7-0", "d7-1")
