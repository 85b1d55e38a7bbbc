"""Ghosts of plain rules beside the policy: what they would hold, and when one is followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.plan import Ghost, Guard, PlannerState
from contracts.reasons import Reason
from contracts.world import Residency, Sla
from controller.policies.base import Context
from controller.policies.expected_loss import ExpectedLoss
from controller.policies.guard import (
    FIRST_FOLLOW_S,
    GDSF,
    LEAST_LEAD,
    LONGEST_FOLLOW_S,
    LRU,
    watched,
)
from tests.worlds import MIB, NODE, A, B, C, config, curve, model, world

HOT, LOADING = Residency.HOT, Residency.LOADING


def context(w, *, state=None, forecasts=(), **fields):
    return Context(
        now_s=w.taken_at_s,
        node=NODE,
        world=w,
        forecasts={forecast.model: forecast for forecast in forecasts},
        state=state or PlannerState(),
        config=config("headstart", **fields),
        models=w.on_node(NODE),
    )


def asked(guard, name, now_s, *models, mb=30, **fields):
    """One request for ``name`` in a world of ``models``."""
    w = world(*models, mb=mb, now_s=now_s, **fields)
    return watched(context(w), guard, [(w.models[name], 1)])


class TestGhosts:
    def models(self, a=Residency.COLD):
        return model(A, a, load_s=8.0), model(B, load_s=4.0, mb=20), model(C, load_s=8.0)

    def test_a_request_loads_what_the_ghost_does_not_hold(self):
        guard = asked(Guard(), A, 100.0, *self.models())
        assert guard.ghosts[LRU].ready_at_s == {A: 108.0}
        assert guard.ghosts[LRU].value == {A: 100.0}
        assert guard.ghosts[GDSF].value == {A: 1 * 8.0 / 10}
        assert guard.ghosts[GDSF].counts == {A: 1}

    def test_two_load_at_once_and_a_third_waits_for_a_slot(self):
        guard = Guard()
        for name in (A, B, C):
            guard = asked(guard, name, 100.0, *self.models(), mb=40)
        assert guard.ghosts[LRU].ready_at_s == {A: 108.0, B: 104.0, C: 112.0}

    def test_the_least_value_goes_and_what_loads_does_not(self):
        guard = Guard()
        for name, now_s in ((A, 100.0), (B, 101.0), (C, 102.0)):
            guard = asked(guard, name, now_s, *self.models())
        # at 102 s all the others still load: there is no room, and nothing goes
        assert set(guard.ghosts[LRU].ready_at_s) == {A, B}
        guard = asked(guard, C, 110.0, *self.models())
        assert set(guard.ghosts[LRU].ready_at_s) == {B, C}

    def test_what_goes_raises_the_values_that_follow(self):
        guard = Guard()
        for name, now_s in ((A, 100.0), (B, 101.0), (C, 110.0)):
            guard = asked(guard, name, now_s, *self.models())
        # b has the least load time per byte: 4 s for 20 MB
        assert set(guard.ghosts[GDSF].ready_at_s) == {A, C}
        assert guard.ghosts[GDSF].inflation == pytest.approx(0.2)
        assert guard.ghosts[GDSF].value[C] == pytest.approx(0.2 + 0.8)

    def test_an_unknown_size_takes_no_room_and_a_model_that_is_gone_none_either(self):
        guard = asked(Guard(), A, 100.0, model(A, mb=None), model(B, mb=30))
        guard = asked(guard, B, 120.0, model(B, mb=30))
        assert set(guard.ghosts[LRU].ready_at_s) == {A, B}

    def test_without_a_known_memory_nothing_is_said(self):
        assert asked(Guard(), A, 100.0, model(A), mb=None) == Guard()


class TestScore:
    """A ghost that holds the model serves in time; we do by what the world says."""

    holds = Guard(ghosts={LRU: Ghost(ready_at_s={A: 50.0}, value={A: 50.0})})

    def lead(self, status, *, now_s=100.0, **fields):
        return asked(self.holds, A, now_s, status, **fields).ghosts[LRU].lead

    def test_late_with_us_alone_is_a_lead(self):
        assert self.lead(model(A, load_s=8.0)) == 1.0

    def test_a_resident_model_is_in_time_and_so_is_one_that_is_about_to_be(self):
        assert self.lead(model(A, HOT)) == 0.0
        assert self.lead(model(A, LOADING, since_s=94.0, load_s=8.0)) == 0.0
        assert self.lead(model(A, LOADING, since_s=93.0, load_s=8.0)) == 0.0
        assert self.lead(model(A, LOADING, since_s=97.0, load_s=8.0)) == 1.0

    def test_late_with_the_ghost_alone_is_a_lag(self):
        guard = asked(Guard(), A, 100.0, model(A, HOT, load_s=8.0))
        assert guard.ghosts[LRU].lead == -1.0
        assert guard.ghosts[LRU].spread == 1.0

    def test_a_weight_counts(self):
        sla = Sla(model=A, target_s=2.0, weight=3.0)
        assert self.lead(model(A, load_s=8.0), slas={A: sla}) == 3.0


def losing(requests, *, guard=None, now_s=1000.0):
    """So many requests in a row that are late with us and in time with an ``lru`` that has room."""
    guard = guard or Guard(
        ghosts={
            LRU: Ghost(ready_at_s={A: 0.0}, value={A: 0.0}),
            GDSF: Ghost(value={A: 0.0, B: 0.0}, ready_at_s={B: 1e9}),
        }
    )
    for _ in range(requests):
        guard = asked(guard, A, now_s, model(A, load_s=8.0), model(B, mb=25))
    return guard


class TestFollowing:
    def test_by_more_than_chance_and_not_for_a_handful(self):
        assert losing(int(LEAST_LEAD)).following == ""
        guard = losing(int(LEAST_LEAD) + 1)
        assert (guard.following, guard.tripped) == (LRU, 1)
        assert guard.until_s == 1000.0 + FIRST_FOLLOW_S

    def test_it_ends_with_its_time_and_a_clean_record(self):
        guard = losing(20)
        w = world(model(A), now_s=guard.until_s - 1.0)
        assert watched(context(w), guard, []) is guard
        over = watched(context(replace(w, taken_at_s=guard.until_s)), guard, [])
        assert over.following == ""
        assert {ghost.lead for ghost in over.ghosts.values()} == {0.0}

    def test_who_loses_again_is_left_for_twice_as_long_up_to_a_day(self):
        guard, lengths_h = losing(20), []
        for _ in range(6):
            lengths_h.append((guard.until_s - 1000.0) / 3600.0)
            w = world(model(A), now_s=guard.until_s)
            guard = replace(watched(context(w), guard, []), until_s=1000.0)
            guard = losing(20, guard=guard)
        assert lengths_h == [1, 2, 4, 8, 16, 24]
        assert guard.follow_s == LONGEST_FOLLOW_S

    def test_after_a_good_day_it_begins_with_an_hour_again(self):
        guard = losing(20)
        late_s = guard.until_s + LONGEST_FOLLOW_S + 1.0
        released = watched(context(world(model(A), now_s=late_s)), guard, [])
        again = losing(20, guard=released, now_s=late_s)
        assert again.until_s == late_s + FIRST_FOLLOW_S
        assert again.tripped == 2

    @pytest.mark.parametrize(
        ("rule", "reason", "order"),
        [
            (LRU, Reason.LEAST_RECENTLY_USED, [B, A]),
            (GDSF, Reason.LEAST_VALUE_PER_BYTE, [A, B]),
        ],
    )
    def test_then_the_rule_says_who_goes_and_nothing_is_loaded_ahead(self, rule, reason, order):
        w = world(model(A, HOT, used_s=90.0), model(B, HOT, used_s=50.0), model(C))
        guard = Guard(
            ghosts={LRU: Ghost(), GDSF: Ghost(value={A: 1.0, B: 2.0})},
            following=rule,
            until_s=1e9,
        )
        state = PlannerState(guards={NODE: guard})
        curves = [curve(A, {20: 0.1}), curve(B, {20: 2.0}), curve(C, {20: 5.0})]
        found = context(w, state=state, forecasts=curves)
        victims = ExpectedLoss().victims(found, w.on_node(NODE)[:2])
        assert [victim.model for victim in victims] == order
        assert {victim.reason for victim in victims} == {reason}
        assert ExpectedLoss().candidates(found, w.on_node(NODE)[2:]) == ()


class TestLearning:
    def test_requests_that_came_are_watched(self):
        w = world(model(A, HOT, arrivals=1))
        state = ExpectedLoss().learn(context(w))
        assert state.guards[NODE].ghosts[LRU].value == {A: 100.0}

    def test_nothing_new_changes_nothing(self):
        w = world(model(A, HOT))
        state = PlannerState()
        assert ExpectedLoss().learn(context(w, state=state)) is state

    def test_it_can_be_switched_off(self):
        w = world(model(A, HOT, arrivals=1))
        assert ExpectedLoss().learn(context(w, guard=False)).guards == {}

    def test_a_size_is_kept_as_bytes(self):
        w = world(model(A, HOT, arrivals=1, mb=31), mb=30)
        state = ExpectedLoss().learn(context(w))
        assert state.guards[NODE].ghosts[LRU].ready_at_s == {}
        assert w.models[A].footprint_bytes == 31 * MIB
