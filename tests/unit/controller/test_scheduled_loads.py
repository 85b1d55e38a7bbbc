"""Warm-up schedules in the plan: loaded ahead, kept while they last, in nobody's way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import LoadCause
from contracts.plan import LoadModel, Outcome, PlannerState
from contracts.reasons import Reason
from contracts.world import Residency, ScheduledUse
from controller.planner import plan
from controller.precedence import FRESH_S, in_order, is_due, starts_loading_s
from tests.worlds import NODE, A, B, C, D, config, curve, model, world

COLD, HOT = Residency.COLD, Residency.HOT
FROM_110 = {A: ScheduledUse(starts_at_s=110.0, ends_at_s=200.0)}
NOW = {A: ScheduledUse(starts_at_s=50.0, ends_at_s=200.0)}


def decide(w, *forecasts, policy="lru", **fields):
    return plan(
        world=w,
        forecasts={forecast.model: forecast for forecast in forecasts},
        state=PlannerState(),
        config=config(policy, **fields),
    )


def orders(result):
    return [
        ("load", action.model, action.after)
        if isinstance(action, LoadModel)
        else ("unload", action.model)
        for action in result.plan.actions
    ]


def waits(name, since_s=99.0, **fields):
    return model(name, waiting=1, wanted_since_s=since_s, **fields)


def test_a_load_begins_so_early_that_the_model_is_there_in_time():
    # 8 s usually: 12 s ahead, with a margin of a quarter and two seconds.
    assert starts_loading_s(model(A), 110.0) == 98.0
    # What was never loaded may take longer than its size tells.
    assert starts_loading_s(model(A, load_s=None), 110.0) == 95.5
    assert starts_loading_s(model(A, load_s=None, mb=600_000), 110.0) < -1000.0
    result = decide(world(model(A), scheduled=FROM_110, now_s=98.0))
    (action,) = result.plan.actions
    assert isinstance(action, LoadModel)
    assert (action.model, action.cause, action.reason) == (
        A, LoadCause.SCHEDULE, Reason.SCHEDULE,
    )  # fmt: skip


def test_before_that_nothing_is_done_but_the_planner_asks_to_be_asked():
    result = decide(world(model(A), scheduled=FROM_110, now_s=95.0))
    assert orders(result) == []
    assert result.next_tick_at_s == 98.0


def test_a_schedule_of_a_model_that_nobody_lists_says_nothing():
    result = decide(world(model(B), scheduled=FROM_110, now_s=95.0))
    assert orders(result) == []
    assert not is_due(world(model(B)), model(B))


def test_while_it_lasts_the_model_comes_back_and_after_it_does_not():
    assert orders(decide(world(model(A), scheduled=NOW, now_s=199.0))) == [("load", A, ())]
    assert orders(decide(world(model(A), scheduled=NOW, now_s=200.0))) == []


@pytest.mark.parametrize(
    "fields",
    [{"kept_out": True}, {"residency": HOT}, {"pinned": True}],
    ids=["an operator unloaded it", "it is there", "it is pinned"],
)
def test_it_is_not_loaded_for_the_schedule_where(fields):
    result = decide(world(model(A, **fields), scheduled=NOW))
    causes = [a.cause for a in result.plan.actions if isinstance(a, LoadModel)]
    assert LoadCause.SCHEDULE not in causes


def test_who_waits_and_what_was_asked_for_comes_first():
    w = world(model(A), waits(B), model(C), scheduled=NOW, operator_loads=frozenset({C}))
    assert [a.model for a in decide(w, parallel_loads=9).plan.actions] == [B, C, A]
    w = world(model(A), scheduled=NOW, preloads=frozenset({A}))
    assert [a.reason for a in decide(w).plan.actions] == [Reason.PRELOAD]


def test_only_what_was_not_used_for_a_while_goes_for_a_schedule():
    fresh = world(model(A), model(B, HOT, mb=30, used_s=100.0 - FRESH_S + 1), scheduled=NOW)
    result = decide(fresh)
    assert orders(result) == []
    assert [(d.subject, d.outcome, d.reason) for d in result.plan.decisions] == [
        (A, Outcome.HOLD, Reason.NO_ROOM)
    ]
    stale = world(model(A), model(B, HOT, mb=30, used_s=100.0 - FRESH_S), scheduled=NOW)
    assert orders(decide(stale)) == [("unload", B), ("load", A, (B,))]


def test_two_scheduled_models_that_exclude_each_other_do_not_swap():
    both = NOW | {B: ScheduledUse(starts_at_s=50.0, ends_at_s=200.0)}
    assert orders(decide(world(model(A), model(B, HOT, mb=30), scheduled=both))) == []


def test_a_scheduled_load_without_room_holds_up_no_prefetch():
    w = world(model(A), model(B, HOT, mb=30, used_s=99.0), model(C), scheduled=NOW)
    told = curve(C, {20.0: 3.0}), curve(B, {3600.0: 0.01})
    result = decide(w, *told, policy="headstart", just_in_time=False)
    assert ("load", C, (B,)) in orders(result)


def test_while_it_lasts_it_is_the_last_that_goes_for_a_request():
    w = world(waits(D), model(A, HOT, used_s=1.0), model(B, HOT, used_s=98.0), model(C, HOT))
    scheduled = replace(w, scheduled=NOW)
    both = [waits(D, mb=30)], [model(A, HOT, mb=30)]
    assert orders(decide(w))[0] == ("unload", C)
    only_a = replace(scheduled, models={**w.models, C: replace(w.models[C], pinned=True)})
    assert orders(decide(only_a))[0] == ("unload", B)
    alone = world(*both[0], *both[1], scheduled=NOW)
    assert orders(decide(alone)) == [("unload", A), ("load", D, (A,))]


def test_while_it_lasts_it_goes_for_no_prefetch_and_does_not_expire():
    w = world(model(A, HOT, mb=30, used_s=1.0), model(C), scheduled=NOW)
    told = curve(C, {20.0: 3.0}), curve(A, {3600.0: 0.01})
    assert orders(decide(w, *told, policy="headstart", just_in_time=False)) == []
    old = world(model(A, HOT), scheduled=NOW)
    assert orders(decide(old, policy="idle-timeout", idle_timeout_s=1.0)) == []
    assert orders(decide(world(model(A, HOT)), policy="idle-timeout", idle_timeout_s=1.0)) == [
        ("unload", A)
    ]


def test_without_schedules_and_groups_the_policys_order_stands():
    assert in_order((), world(model(A)), model(A), config(), None) == ()
    assert NODE in world(model(A)).nodes
