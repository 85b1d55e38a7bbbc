"""The GPU is handed over: what goes, what is not loaded, and what comes back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import UnloadCause
from contracts.plan import LoadModel, Outcome, PlannerState, UnloadModel
from contracts.reasons import Reason
from contracts.world import GpuYield, Residency, ScheduledUse
from controller.fold import commit
from controller.planner import plan
from controller.routes import load_answer
from controller.yielding import QUIET_HOURS, handed_over, is_kept_off
from tests.worlds import MIB, NODE, A, B, C, config, curve, model, world

HOT, COLD = Residency.HOT, Residency.COLD
NOW_S = 100.0
BY_HAND = GpuYield(since_s=50.0, note="a game")


def planned(snapshot, policy="lru", **forecasts):
    return plan(
        world=snapshot,
        forecasts={curve.model: curve for curve in forecasts.values()},
        state=PlannerState(),
        config=config(policy),
    )


def gone(snapshot):
    return {a.model: a for a in planned(snapshot).plan.actions if isinstance(a, UnloadModel)}


class TestWhose:
    def test_ours_unless_somebody_says_otherwise(self):
        assert handed_over(world(model(A))) is None

    def test_by_hand_until_it_is_over(self):
        wish = replace(BY_HAND, until_s=NOW_S + 1.0)
        w = world(model(A), gpu_yield=wish)
        assert handed_over(w) == wish
        assert handed_over(replace(w, taken_at_s=NOW_S + 1.0)) is None

    def test_in_quiet_hours(self):
        w = world(model(A), quiet_until_s=NOW_S + 60.0)
        assert handed_over(w) == GpuYield(since_s=NOW_S, until_s=NOW_S + 60.0, note=QUIET_HOURS)
        assert handed_over(replace(w, quiet_until_s=NOW_S)) is None
        assert handed_over(replace(w, gpu_yield=BY_HAND)) == BY_HAND


class TestLetsGo:
    def test_all_idle_ones_at_once_also_pinned(self):
        w = world(model(A, HOT), model(B, HOT, pinned=True), model(C), gpu_yield=BY_HAND)
        actions = gone(w)
        assert set(actions) == {A, B}
        assert {(a.reason, a.cause, a.drain_s) for a in actions.values()} == {
            (Reason.GPU_YIELDED, UnloadCause.EVICTED, None)
        }

    def test_with_what_it_rests_on(self):
        w = world(model(A, HOT), gpu_yield=replace(BY_HAND, until_s=NOW_S + 60.0))
        decision = planned(w).plan.decisions[0]
        assert (decision.subject, decision.outcome) == (A, Outcome.CHANGE)
        assert dict(decision.evidence) == {
            "freed_mb": 10,
            "keep_mb": 0,
            "in_flight": 0,
            "rest_s": 60.0,
            "note": "a game",
        }
        nameless = planned(replace(w, gpu_yield=GpuYield(since_s=0.0))).plan.decisions[0]
        assert dict(nameless.evidence) == {"freed_mb": 10, "keep_mb": 0, "in_flight": 0}

    def test_those_that_serve_when_their_last_request_has_ended(self):
        w = world(model(A, HOT, in_flight=1), gpu_yield=BY_HAND)
        assert gone(w)[A].drain_s == config().turn_drain_s

    def test_nothing_that_was_spared_a_moment_ago(self):
        w = world(model(A, HOT, spared_until_s=NOW_S + 1.0), gpu_yield=BY_HAND)
        assert gone(w) == {}

    def test_no_more_than_is_wanted_the_longest_unused_first(self):
        w = world(
            model(A, HOT, used_s=10.0),
            model(B, HOT, used_s=30.0),
            model(C, HOT, used_s=20.0, in_flight=1),
            gpu_yield=replace(BY_HAND, keep_bytes=20 * MIB),
        )
        assert set(gone(w)) == {A}
        less = replace(w, gpu_yield=replace(BY_HAND, keep_bytes=10 * MIB))
        assert set(gone(less)) == {A, B}  # idle ones before those that serve
        least = replace(w, gpu_yield=replace(BY_HAND, keep_bytes=5 * MIB))
        assert set(gone(least)) == {A, B, C}

    def test_of_unknown_size_only_where_nothing_may_stay(self):
        w = world(model(A, HOT, mb=None), gpu_yield=BY_HAND)
        assert set(gone(w)) == {A}
        kept = replace(w, gpu_yield=replace(BY_HAND, keep_bytes=MIB))
        assert gone(kept) == {}

    def test_nothing_of_the_host(self):
        w = world(model(A, HOT, on_host=True), model(B, HOT), gpu_yield=BY_HAND)
        assert set(gone(w)) == {B}
        cpu = replace(w, nodes={NODE: replace(w.nodes[NODE], accelerator="cpu")})
        assert gone(cpu) == {}

    def test_not_what_a_schedule_wants_in_its_own_quiet_hours(self):
        use = {A: ScheduledUse(starts_at_s=NOW_S - 10.0, ends_at_s=NOW_S + 60.0)}
        w = world(model(A, HOT), model(B, HOT), quiet_until_s=NOW_S + 60.0, scheduled=use)
        assert set(gone(w)) == {B}
        assert set(gone(replace(w, gpu_yield=BY_HAND))) == {A, B}


class TestLoadsNothing:
    def test_for_those_who_wait_and_says_so(self):
        w = world(model(A, waiting=1, wanted_since_s=90.0), gpu_yield=BY_HAND)
        result = planned(w)
        assert result.plan.actions == ()
        (decision,) = (d for d in result.plan.decisions if d.subject == A)
        assert (decision.outcome, decision.reason) == (Outcome.HOLD, Reason.GPU_YIELDED)
        answer = load_answer(w, result.state, A)
        assert (answer.accepted, answer.reason) == (False, Reason.GPU_YIELDED)
        assert answer.retry_after_s is None
        timed = replace(w, gpu_yield=replace(BY_HAND, until_s=NOW_S + 30.0))
        assert load_answer(timed, planned(timed).state, A).retry_after_s == 30.0

    def test_ahead_of_demand(self):
        w = world(model(A), gpu_yield=BY_HAND)
        result = planned(w, "headstart", a=curve(A, {20: 3.0}))
        assert result.plan.actions == ()
        assert [d.reason for d in result.plan.decisions] == [Reason.GPU_YIELDED]

    def test_but_what_is_small_enough(self):
        w = world(
            model(A, waiting=1, wanted_since_s=90.0),
            model(B, HOT),
            gpu_yield=replace(BY_HAND, keep_bytes=20 * MIB),
        )
        (action,) = planned(w).plan.actions
        assert isinstance(action, LoadModel)
        assert not is_kept_off(w, w.models[A])
        assert is_kept_off(w, replace(w.models[A], footprint_bytes=11 * MIB))
        assert is_kept_off(w, replace(w.models[A], footprint_bytes=None))

    def test_but_what_runs_on_cpus(self):
        w = world(model(A, on_host=True), model(B), gpu_yield=BY_HAND)
        assert not is_kept_off(w, w.models[A])
        assert is_kept_off(w, w.models[B])
        assert not is_kept_off(replace(w, gpu_yield=None), w.models[B])


def test_what_went_comes_back_when_it_is_over():
    w = world(model(A, HOT), gpu_yield=replace(BY_HAND, until_s=NOW_S + 60.0))
    w = commit(w, planned(w).plan)
    assert w.models[A].yielded == 1
    away = replace(w.models[A], residency=COLD, residency_since_s=NOW_S + 1.0)
    w = replace(w, models={A: away})
    assert planned(replace(w, taken_at_s=NOW_S + 59.0)).plan.actions == ()
    (back,) = planned(replace(w, taken_at_s=NOW_S + 61.0)).plan.actions
    assert isinstance(back, LoadModel)
    assert back.reason is Reason.ROOM_BACK


@pytest.mark.parametrize("policy", ["headstart", "lru", "gdsf", "idle-timeout", "weighted-score"])
def test_whatever_the_policy_all_of_it_goes(policy):
    w = world(model(A, HOT), model(B, HOT, mb=None), gpu_yield=BY_HAND)
    assert {a.model for a in planned(w, policy).plan.actions} == {A, B}
