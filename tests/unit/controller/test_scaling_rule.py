"""How many replicas: each rule of it, and that it never flaps, overshoots or forgets."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.reasons import Reason
from contracts.scaling import Need, Replicas, ScalingState, ScalingTarget
from controller.scaling.rule import FIRST_RETRY_S, may_order, refused, rescaled, taken

TARGET = ScalingTarget(
    name="chat", capacity=2.0, utilisation=1.0, start_s=60.0, smallest=0, largest=10,
    stabilisation_s=300.0, idle_s=900.0,
)  # fmt: skip


def looked(
    in_flight: int = 0,
    waiting: int = 0,
    expected: float | None = None,
    *,
    ready: int = 1,
    wanted: int | None = None,
    target: ScalingTarget = TARGET,
    state: ScalingState | None = None,
    at_s: float = 0.0,
):
    return rescaled(
        target,
        Replicas(ready=ready, wanted=ready if wanted is None else wanted),
        Need(in_flight=in_flight, waiting=waiting, expected=expected),
        state or ScalingState(),
        at_s,
    )


def calm(ready: int, *, for_s: float, target: ScalingTarget = TARGET, in_flight: int = 0):
    """The state after a steady time, and when it ends."""
    state = ScalingState()
    for at_s in range(0, int(for_s), 10):
        _, state = looked(in_flight, ready=ready, target=target, state=state, at_s=float(at_s))
    return state, float(int(for_s))


@pytest.mark.parametrize(
    ("numbers", "wanted", "reason"),
    [
        ({"in_flight": 2}, 1, Reason.ENOUGH),
        ({"in_flight": 2, "waiting": 1}, 2, Reason.LIVE_NEED),
        ({"in_flight": 2, "expected": 7.0}, 4, Reason.FORECAST_NEED),
        ({"in_flight": 2, "waiting": 3}, 3, Reason.PANIC),
        ({"waiting": 1, "ready": 0}, 1, Reason.WOKEN),
        ({"expected": 0.5, "ready": 0}, 1, Reason.FORECAST_NEED),
        ({"ready": 0}, 0, Reason.ENOUGH),
        ({"ready": 0, "expected": 0.04}, 0, Reason.ENOUGH),
        ({"in_flight": 4, "waiting": 30}, 10, Reason.AT_LARGEST),
        ({"in_flight": 20, "ready": 10}, 10, Reason.ENOUGH),
        ({"in_flight": 22, "ready": 10}, 10, Reason.AT_LARGEST),
    ],
)
def test_out_at_once_for_the_larger_of_what_is_and_what_is_expected(numbers, wanted, reason):
    scaling, _ = looked(**numbers)
    assert (scaling.replicas, scaling.reason) == (wanted, reason)
    assert scaling.changed == (wanted != numbers.get("ready", 1))


def test_a_share_of_the_capacity_is_planned_with():
    half = replace(TARGET, utilisation=0.5)
    assert looked(3)[0].replicas == 2
    assert looked(3, target=half)[0].replicas == 3
    # What is foreseen has its bursts in it: no part of the capacity is kept free for them.
    assert looked(expected=6.0, target=half)[0].replicas == 3


def test_what_starts_counts_as_there_and_is_told_when_it_is_overdue():
    state = ScalingState()
    for at_s in range(0, 200, 10):
        scaling, state = looked(4, ready=1, wanted=2, state=state, at_s=float(at_s))
        assert not scaling.changed
        assert scaling.reason is (Reason.START_OVERDUE if at_s > 180 else Reason.STARTING)
    scaling, state = looked(4, ready=2, wanted=2, state=state, at_s=200.0)
    assert scaling.reason is Reason.ENOUGH
    assert state.starting_since_s is None


def test_who_is_not_told_what_is_wanted_believes_its_own_order():
    state = taken(ScalingState(), 3)
    scaling, _ = rescaled(TARGET, Replicas(ready=1), Need(in_flight=5, waiting=0), state, 0.0)
    assert (scaling.changed, scaling.reason) == (False, Reason.STARTING)


def test_a_step_bounds_an_order_unless_it_panics_or_there_is_none():
    target = replace(TARGET, step_out=1)
    assert looked(2, expected=9.0, target=target)[0].replicas == 2
    assert looked(2, waiting=8, target=target)[0].replicas == 5
    assert looked(waiting=6, ready=0, target=target)[0].replicas == 3


def test_a_budget_bounds_as_largest_does():
    target = replace(TARGET, cost_per_hour=2.0, budget_per_hour=7.0)
    scaling, _ = looked(20, ready=3, target=target)
    assert (scaling.replicas, scaling.reason) == (3, Reason.OVER_BUDGET)
    assert replace(target, smallest=5).most == 5
    assert replace(target, cost_per_hour=None).most == 10


def test_in_only_after_the_whole_window_and_by_a_step():
    state, now_s = calm(4, for_s=280, in_flight=2)
    scaling, state = looked(2, ready=4, state=state, at_s=now_s)
    assert (scaling.replicas, scaling.reason) == (4, Reason.STABILISING)
    scaling, state = looked(2, ready=4, state=state, at_s=now_s + 20)
    assert (scaling.replicas, scaling.reason) == (3, Reason.NEEDED_LESS)


def test_one_burst_within_the_window_keeps_what_it_needed():
    state, now_s = calm(4, for_s=200, in_flight=2)
    for _ in range(10):
        _, state = looked(8, ready=4, state=state, at_s=now_s)
        now_s += 10
    for _ in range(30):
        scaling, state = looked(2, ready=4, state=state, at_s=now_s)
        assert not scaling.changed
        now_s += 10
    for _ in range(4):
        now_s += 10
        _, state = looked(2, ready=4, state=state, at_s=now_s)
    scaling, _ = looked(2, ready=4, state=state, at_s=now_s + 10)
    assert scaling.replicas == 3


def test_a_forecast_alone_takes_nothing_away_and_keeps_what_it_needs():
    state, now_s = calm(4, for_s=600, in_flight=8)
    scaling, _ = looked(8, expected=0.0, ready=4, state=state, at_s=now_s)
    assert (scaling.replicas, scaling.reason) == (4, Reason.ENOUGH)
    state, now_s = calm(4, for_s=600, in_flight=2)
    scaling, _ = looked(2, expected=8.0, ready=4, state=state, at_s=now_s)
    assert scaling.replicas == 4


def test_after_a_panic_nothing_goes_for_a_window():
    state, now_s = calm(2, for_s=600, in_flight=1)
    _, state = looked(9, ready=2, state=state, at_s=now_s)
    for later_s in range(10, 300, 10):
        scaling, state = looked(0, ready=5, state=state, at_s=now_s + later_s)
        assert (scaling.replicas, scaling.reason) == (5, Reason.STABILISING)


def test_to_none_when_nobody_asked_for_the_idle_time():
    state = ScalingState()
    _, state = looked(1, state=state, at_s=0.0)
    for at_s in range(10, 900, 10):
        scaling, state = looked(state=state, at_s=float(at_s))
        assert scaling.replicas == 1
    scaling, state = looked(state=state, at_s=900.0)
    assert (scaling.replicas, scaling.reason) == (0, Reason.NOBODY_ASKS)
    scaling, _ = looked(waiting=1, ready=0, state=state, at_s=905.0)
    assert (scaling.replicas, scaling.reason) == (1, Reason.WOKEN)


def test_the_smallest_stays_though_nobody_asks():
    target = replace(TARGET, smallest=1)
    state, now_s = calm(3, for_s=2000, target=target)
    scaling, _ = looked(ready=3, state=state, target=target, at_s=now_s)
    assert scaling.replicas == 2
    state, now_s = calm(1, for_s=2000, target=target)
    scaling, _ = looked(ready=1, state=state, target=target, at_s=now_s)
    assert (scaling.replicas, scaling.reason) == (1, Reason.ENOUGH)


def test_more_than_the_bound_go_at_once():
    scaling, _ = looked(2, ready=12)
    assert (scaling.replicas, scaling.reason) == (10, Reason.AT_LARGEST)


def test_what_somebody_else_took_away_is_asked_for_again():
    state = taken(ScalingState(), 3)
    scaling, _ = looked(5, ready=1, wanted=1, state=state)
    assert (scaling.replicas, scaling.changed) == (3, True)


def test_an_order_that_is_refused_is_tried_ever_later():
    state = refused(ScalingState(), 0.0)
    assert not may_order(state, FIRST_RETRY_S - 1)
    assert may_order(state, FIRST_RETRY_S)
    for _ in range(20):
        state = refused(state, 0.0)
    assert state.retry_at_s == 300.0
    assert may_order(taken(state, 2), 0.0)


def test_every_answer_has_its_numbers():
    scaling, _ = looked(3, waiting=2, expected=4.5, ready=1, wanted=3)
    assert dict(scaling.evidence) == {
        "ready": 1, "starting": 2, "in_flight": 3, "waiting": 2, "load": 5.0,
        "replicas_for_now": 3, "replicas_for_forecast": 3, "expected": 4.5,
    }  # fmt: skip
    assert Replicas(ready=2).starting == 0
