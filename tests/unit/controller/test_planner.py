"""Stories in virtual time: what is so, and what is decided. Memory is 30 MB, a model 10 MB."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.errors import Invalid
from contracts.events import LoadCause, UnloadCause
from contracts.forecasts import ForecastStatus
from contracts.ids import NodeId
from contracts.plan import LoadModel, Outcome, PlannerState, UnloadModel
from contracts.reasons import Reason, explain
from contracts.world import Mode, NodeStatus, Residency
from controller.fold import commit, fold
from controller.planner import is_ordered, plan
from controller.policies.base import LOOK_S
from tests.worlds import (
    NODE,
    A,
    B,
    C,
    D,
    config,
    curve,
    model,
    unloaded,
    world,
)

COLD, LOADING, HOT = Residency.COLD, Residency.LOADING, Residency.HOT
DRAINING, FAILED = Residency.DRAINING, Residency.FAILED


def decide(w, *forecasts, policy="lru", state=None, **fields):
    return plan(
        world=w,
        forecasts={forecast.model: forecast for forecast in forecasts},
        state=state or PlannerState(),
        config=config(policy, **fields),
    )


def orders(result):
    """Loads as ("load", model, victims), unloads as ("unload", model)."""
    return [
        ("load", action.model, action.after)
        if isinstance(action, LoadModel)
        else ("unload", action.model)
        for action in result.plan.actions
    ]


def said(result):
    return [(d.subject, d.outcome, d.reason) for d in result.plan.decisions]


def waits(name, since_s=99.0, **fields):
    return model(name, waiting=1, wanted_since_s=since_s, **fields)


class TestDemand:
    def test_a_model_that_is_waited_for_is_loaded(self):
        result = decide(world(waits(A)))
        assert orders(result) == [("load", A, ())]
        (action,) = result.plan.actions
        assert (action.cause, action.reason, action.node) == (
            LoadCause.DEMAND,
            Reason.DEMAND,
            NODE,
        )
        (decision,) = result.plan.decisions
        assert (decision.outcome, decision.reason) == (Outcome.CHANGE, Reason.DEMAND)
        assert dict(decision.evidence) == {"waiting": 1, "waited_s": 1.0}

    def test_the_longest_idle_model_makes_room(self):
        result = decide(
            world(waits(A), *(model(n, HOT, used_s=s) for n, s in ((B, 90), (C, 50), (D, 80))))
        )
        assert orders(result) == [("unload", C), ("load", A, (C,))]
        unload, load = result.plan.actions
        assert (unload.cause, unload.reason) == (UnloadCause.EVICTED, Reason.LEAST_RECENTLY_USED)
        evidence = {d.subject: dict(d.evidence) for d in result.plan.decisions}
        assert evidence[C] == {"idle_s": 50.0, "room_for": "a"}
        assert evidence[A]["evicts"] == "c"
        assert unload.action_id != load.action_id

    def test_no_more_goes_than_must(self):
        w = world(waits(A, mb=15), *(model(n, HOT, used_s=s) for n, s in ((B, 50), (C, 60))))
        assert orders(decide(w)) == [("unload", B), ("load", A, (B,))]

    def test_several_go_where_one_is_not_enough(self):
        w = world(waits(A, mb=25), *(model(n, HOT, used_s=s) for n, s in ((B, 50), (C, 60))))
        assert orders(decide(w)) == [("unload", B), ("unload", C), ("load", A, (B, C))]

    @pytest.mark.parametrize(
        "kept",
        [
            model(B, HOT, in_flight=1),
            model(B, HOT, waiting=1, wanted_since_s=99.5),
            model(B, HOT, pinned=True),
            model(B, HOT, spared_until_s=101.0),
            model(B, LOADING),
        ],
        ids=["busy", "waited for", "pinned", "spared", "loading"],
    )
    def test_what_may_not_go_stays_and_the_load_waits_for_room(self, kept):
        result = decide(world(waits(A, mb=25), kept))
        assert orders(result) == []
        (decision,) = [d for d in result.plan.decisions if d.subject == A]
        assert (decision.outcome, decision.reason) == (Outcome.HOLD, Reason.NO_ROOM)
        assert dict(decision.evidence) == {
            "needs_mb": 25,
            "occupied_mb": 10,
            "usable_mb": 30,
            "loading": int(kept.residency is LOADING),
        }

    def test_nobody_goes_where_all_of_them_would_not_be_enough(self):
        w = world(waits(A, mb=25), model(B, HOT), model(C, HOT, in_flight=1))
        assert orders(decide(w)) == []

    def test_first_come_first_loaded(self):
        result = decide(world(waits(A, 99.0), waits(B, 97.0), waits(C, 98.0)), parallel_loads=5)
        assert [name for _, name, _ in orders(result)] == [B, C, A]

    def test_two_load_at_once_and_the_third_waits_for_a_slot(self):
        result = decide(world(waits(A, 97.0), waits(B, 98.0), waits(C, 99.0)))
        assert orders(result) == [("load", A, ()), ("load", B, ())]
        assert said(result)[-1] == (C, Outcome.HOLD, Reason.LOAD_SLOTS_FULL)

    def test_behind_one_that_waits_for_room_those_go_on_that_need_none(self):
        # c is busy for long and a can't have its room; b fits beside it all the same
        w = world(waits(A, 97.0, mb=25), waits(B, 98.0, mb=5), model(C, HOT, in_flight=1))
        result = decide(w)
        assert orders(result) == [("load", B, ())]
        assert said(result) == [
            (A, Outcome.HOLD, Reason.NO_ROOM),
            (B, Outcome.CHANGE, Reason.DEMAND),
        ]

    def test_and_nothing_is_evicted_past_it(self):
        # d would be room enough for b, but a came first and may need it
        busy, idle = model(C, HOT, mb=20, in_flight=1), model(D, HOT, mb=5)
        w = world(waits(A, 97.0, mb=25), waits(B, 98.0, mb=8), busy, idle)
        result = decide(w)
        assert orders(result) == []
        assert said(result) == [
            (A, Outcome.HOLD, Reason.NO_ROOM),
            (B, Outcome.HOLD, Reason.NO_ROOM),
        ]

    def test_all_that_find_no_slot_are_told_so(self):
        w = world(waits(A, 97.0), waits(B, 98.0), model(C, LOADING), model(D, LOADING))
        assert [reason for _, _, reason in said(decide(w))] == [Reason.LOAD_SLOTS_FULL] * 2

    def test_larger_than_the_memory_it_never_loads_and_holds_nobody_up(self):
        result = decide(world(waits(A, 97.0, mb=31), waits(B, 98.0)))
        assert orders(result) == [("load", B, ())]
        assert said(result)[0] == (A, Outcome.HOLD, Reason.NEVER_FITS)

    def test_after_a_failed_load_it_waits_for_the_cool_down_and_holds_nobody_up(self):
        failed = waits(A, 97.0, residency=FAILED, cooldown_until_s=105.0)
        result = decide(world(failed, waits(B, 98.0)))
        assert orders(result) == [("load", B, ())]
        assert said(result)[0] == (A, Outcome.HOLD, Reason.COOL_DOWN)
        assert orders(decide(world(failed, now_s=105.0))) == [("load", A, ())]

    def test_an_unknown_footprint_takes_no_room_that_anybody_knows_of(self):
        w = world(waits(A, mb=None), model(B, HOT, mb=30))
        assert orders(decide(w)) == [("load", A, ())]

    def test_where_nobody_knows_the_memory_nothing_is_evicted_for_bytes(self):
        w = world(waits(A), model(B, HOT, mb=500), mb=None)
        assert orders(decide(w)) == [("load", A, ())]
        assert dict(decide(world(waits(A), mb=None, model_limit=0)).plan.decisions[0].evidence)[
            "usable_mb"
        ] == ("unknown")

    def test_localais_own_limit_is_kept_although_bytes_are_free(self):
        w = world(waits(A), model(B, HOT, used_s=90), model(C, HOT, used_s=50), model_limit=2)
        assert orders(decide(w, budget_bytes=None)) == [("unload", C), ("load", A, (C,))]

    def test_the_reserve_stays_free(self):
        w = world(waits(A), model(B, HOT), model(C, HOT))
        assert orders(decide(w, reserve_ratio=0.1)) == [("unload", B), ("load", A, (B,))]

    def test_what_drains_is_waited_for_before_more_is_evicted(self):
        # at 100 s the second of two loads needs room as well, but b has not gone yet
        w = world(waits(A, 97.0), waits(D, 98.0), model(B, HOT), model(C, HOT, used_s=90.0), mb=20)
        first = decide(w)
        assert orders(first) == [("unload", B), ("load", A, (B,))]
        assert said(first)[-1] == (D, Outcome.HOLD, Reason.DRAINING)
        after = fold(commit(w, first.plan), unloaded(B, 101.0))
        assert orders(decide(after, state=first.state)) == [("unload", C), ("load", D, (C,))]

    def test_a_load_that_fits_beside_what_drains_does_not_wait_for_it(self):
        w = world(waits(A), model(B, DRAINING), model(C, HOT))
        assert orders(decide(w)) == [("load", A, ())]

    def test_a_lost_node_is_left_alone(self):
        result = decide(world(waits(A), alive=False))
        assert (orders(result), said(result)) == ([], [])

    def test_each_node_is_planned_by_itself(self):
        other = NodeId("other")
        w = world(
            waits(A),
            waits(B, node=other),
            model(C, HOT, node=other, used_s=1),
            model(D, HOT),
            mb=15,
        )
        assert orders(decide(w)) == [
            ("unload", D),
            ("load", A, (D,)),
            ("unload", C),
            ("load", B, (C,)),
        ]


class TestOperators:
    def test_a_model_that_somebody_asked_for_is_loaded_after_those_that_are_waited_for(self):
        w = world(model(A), waits(B), operator_loads=frozenset({A}))
        result = decide(w)
        assert orders(result) == [("load", B, ()), ("load", A, ())]
        assert said(result)[1] == (A, Outcome.CHANGE, Reason.OPERATOR)
        assert result.plan.actions[1].cause is LoadCause.OPERATOR

    def test_then_pinned_ones_and_those_to_preload(self):
        w = world(
            model(A), model(B, pinned=True), model(C), operator_loads={C}, preloads=frozenset({A})
        )
        result = decide(w, parallel_loads=3)
        assert [(s, r) for s, _, r in said(result)] == [
            (C, Reason.OPERATOR),
            (A, Reason.PRELOAD),
            (B, Reason.PINNED),
        ]

    def test_an_unload_that_somebody_asked_for(self):
        result = decide(world(model(A, HOT), operator_unloads=frozenset({A})))
        assert orders(result) == [("unload", A)]
        assert result.plan.actions[0].cause is UnloadCause.OPERATOR
        assert said(result) == [(A, Outcome.CHANGE, Reason.OPERATOR)]

    @pytest.mark.parametrize(
        ("fields", "reason"),
        [
            ({"in_flight": 1}, Reason.IN_FLIGHT),
            ({"waiting": 1, "wanted_since_s": 99.0}, Reason.IN_FLIGHT),
            ({"spared_until_s": 101.0}, Reason.IN_FLIGHT),
            ({"pinned": True}, Reason.PINNED),
        ],
    )
    def test_it_waits_while_the_model_may_not_go(self, fields, reason):
        result = decide(world(model(A, HOT, **fields), operator_unloads=frozenset({A})))
        assert orders(result) == []
        assert said(result)[0] == (A, Outcome.HOLD, reason)

    def test_what_is_not_hot_has_nothing_to_unload_yet(self):
        w = world(model(A, LOADING), model(B, DRAINING), operator_unloads=frozenset({A, B}))
        assert orders(decide(w)) == []


class TestIdleTimeout:
    def test_an_idle_model_goes_although_nobody_needs_its_room(self):
        result = decide(world(model(A, HOT, used_s=50.0), now_s=950.0), policy="idle-timeout")
        assert orders(result) == [("unload", A)]
        assert result.plan.actions[0].cause is UnloadCause.IDLE

    def test_not_while_it_is_busy_and_not_while_a_load_waits(self):
        busy = world(model(A, HOT, used_s=50.0, in_flight=1), now_s=950.0)
        assert orders(decide(busy, policy="idle-timeout")) == []
        blocked = world(
            model(A, HOT, used_s=50.0, mb=5),
            waits(B, mb=30),
            model(C, HOT, in_flight=1, since_s=949.0),
            now_s=950,
        )
        assert orders(decide(blocked, policy="idle-timeout")) == []


class TestOtherPolicies:
    def test_localai_lru_counts_models(self):
        # the two largest are 25 and 5 MB, so two always fit; 20 MB are free all the same
        small = (model(name, HOT, mb=5, used_s=used) for name, used in ((B, 50.0), (C, 90.0)))
        w = world(waits(A, mb=5), *small, model(D, mb=25))
        assert orders(decide(w, policy="localai-lru")) == [("unload", B), ("load", A, (B,))]
        assert orders(decide(w)) == [("load", A, ())]

    def test_gdsf_ages_by_the_value_of_its_last_victim(self):
        w = world(waits(A, mb=20), model(B, HOT, arrivals=2), model(C, HOT, arrivals=1))
        result = decide(w, policy="gdsf")
        assert orders(result) == [("unload", C), ("load", A, (C,))]
        assert result.state.gdsf_inflation == pytest.approx(8.0 / 10)
        assert result.state.gdsf_value[B] == pytest.approx(2 * 8.0 / 10)

    def test_an_unknown_policy_is_refused(self):
        with pytest.raises(Invalid):
            decide(world(), policy="lfu")


class TestPrefetch:
    def decide(self, w, *forecasts, **fields):
        return decide(w, *forecasts, policy="headstart", **fields)

    def test_a_model_that_is_due_is_loaded_ahead(self):
        result = self.decide(world(model(A)), curve(A, {20: 0.7}))
        assert orders(result) == [("load", A, ())]
        assert result.plan.actions[0].cause is LoadCause.PREFETCH
        (decision,) = result.plan.decisions
        assert decision.reason is Reason.FORECAST
        assert dict(decision.evidence)["must_beat"] == 0.1

    def test_the_greatest_gain_goes_first_and_one_at_a_time(self):
        result = self.decide(world(model(A), model(B)), curve(A, {20: 0.5}), curve(B, {20: 0.9}))
        assert orders(result) == [("load", B, ())]

    def test_it_evicts_what_is_expected_to_be_missed_less(self):
        w = world(model(A, mb=20), model(B, HOT), model(C, HOT))
        result = self.decide(w, curve(A, {20: 2.0}), curve(B, {20: 0.01}), curve(C, {20: 2.0}))
        assert orders(result) == [("unload", B), ("load", A, (B,))]

    def test_it_holds_where_the_victims_would_be_missed_more(self):
        w = world(model(A, mb=30), model(B, HOT))
        result = self.decide(w, curve(A, {20: 1.0}), curve(B, {20: 1.0}))
        assert orders(result) == []
        assert said(result) == [(NODE, Outcome.HOLD, Reason.GAIN_TOO_SMALL)]

    def test_it_holds_below_the_price(self):
        state = PlannerState(prefetch_price=8.0, priced_at_s=100.0)
        result = self.decide(world(model(A)), curve(A, {20: 5.0}), state=state)
        assert said(result) == [(NODE, Outcome.HOLD, Reason.GAIN_TOO_SMALL)]

    def test_a_candidate_that_finds_no_room_leaves_it_to_the_next(self):
        w = world(model(A, mb=30), model(B, mb=5), model(C, HOT, in_flight=1))
        result = self.decide(w, curve(A, {20: 2.0}), curve(B, {20: 1.0}))
        assert orders(result) == [("load", B, ())]

    def test_not_beside_another_load(self):
        w = world(model(A), model(B, LOADING))
        result = self.decide(w, curve(A, {20: 5.0}))
        assert (orders(result), said(result)) == ([], [])

    def test_not_beside_a_demand_load_of_the_same_run(self):
        result = self.decide(world(model(A), waits(B)), curve(A, {20: 5.0}))
        assert orders(result) == [("load", B, ())]

    def test_not_while_a_demand_load_waits(self):
        w = world(model(A, mb=1), waits(B, mb=25), model(C, HOT, in_flight=1))
        assert orders(self.decide(w, curve(A, {20: 5.0}))) == []

    def test_not_when_it_is_switched_off(self):
        result = self.decide(world(model(A)), curve(A, {20: 5.0}), prefetch=False)
        assert (orders(result), said(result)) == ([], [])

    def test_it_spares_what_was_loaded_a_moment_ago(self):
        w = world(model(A, mb=25), model(B, HOT, since_s=96.0))
        forecasts = curve(A, {20: 5.0}), curve(B, {20: 0.001})
        assert orders(self.decide(w, *forecasts, min_residency_s=5.0)) == []
        assert orders(self.decide(w, *forecasts, min_residency_s=4.0)) == [
            ("unload", B),
            ("load", A, (B,)),
        ]
        # a caller who waits is more than a forecast
        demanded = world(waits(A, mb=25), model(B, HOT, since_s=96.0))
        assert orders(self.decide(demanded, *forecasts)) == [("unload", B), ("load", A, (B,))]

    def test_an_expired_forecast_is_none(self):
        result = self.decide(world(model(A)), curve(A, {20: 5.0}, expires_s=100.0))
        assert orders(result) == []
        assert said(result) == [(NODE, Outcome.ABSTAIN, Reason.NO_FORECAST)]

    def test_it_abstains_where_the_forecast_is_degraded_or_the_size_unknown(self):
        w = world(model(A), model(B, mb=None))
        result = self.decide(
            w, curve(A, {20: 5.0}, status=ForecastStatus.DEGRADED), curve(B, {20: 5.0})
        )
        assert orders(result) == []
        assert said(result) == [
            (A, Outcome.ABSTAIN, Reason.FORECAST_DEGRADED),
            (B, Outcome.ABSTAIN, Reason.UNKNOWN_FOOTPRINT),
        ]

    def test_a_failed_model_is_not_tried_on_a_forecast(self):
        w = world(model(A, FAILED, cooldown_until_s=90.0))
        assert orders(self.decide(w, curve(A, {20: 5.0}))) == []

    def test_one_that_an_operator_unloaded_is_left_out_until_somebody_asks_for_it(self):
        result = self.decide(world(model(A, kept_out=True)), curve(A, {20: 5.0}))
        assert orders(result) == []
        assert said(result)[0] == (A, Outcome.HOLD, Reason.OPERATOR)
        assert orders(self.decide(world(model(A)), curve(A, {20: 5.0}))) == [("load", A, ())]

    def test_one_that_is_held_for_its_cool_down_is_not_prefetched_either(self):
        w = world(waits(A, cooldown_until_s=130.0))
        result = self.decide(w, curve(A, {20: 5.0}))
        assert orders(result) == []
        assert said(result) == [(A, Outcome.HOLD, Reason.COOL_DOWN)]


class TestSaid:
    def test_a_hold_is_said_once_while_it_lasts(self):
        w = world(waits(A, mb=25), model(B, HOT, in_flight=1))
        first = decide(w)
        assert said(first) == [(A, Outcome.HOLD, Reason.NO_ROOM)]
        again = decide(w, state=first.state)
        assert said(again) == []
        busy = replace(w, models={**w.models, C: model(C, LOADING), D: model(D, LOADING)})
        assert said(decide(busy, state=again.state)) == [(A, Outcome.HOLD, Reason.LOAD_SLOTS_FULL)]

    def test_a_hold_that_ended_and_begins_again_is_said_again(self):
        w = world(waits(A, mb=25), model(B, HOT, in_flight=1))
        free = decide(world(model(A, mb=25)), state=decide(w).state)
        assert said(decide(w, state=free.state)) == [(A, Outcome.HOLD, Reason.NO_ROOM)]

    def test_two_holds_of_one_model_do_not_alternate_for_ever(self):
        never = waits(A, mb=31)
        forecast = curve(A, {20: 1.0}, status=ForecastStatus.DEGRADED)
        first = decide(world(never), forecast, policy="headstart")
        assert said(decide(world(never), forecast, policy="headstart", state=first.state)) == []

    def test_an_ordered_change_is_said_each_time(self):
        first = decide(world(waits(A)))
        assert said(decide(world(waits(A)), state=first.state)) == said(first)

    def test_names_are_unique_over_runs(self):
        first = decide(world(waits(A), model(B, HOT), model(C, HOT), model(D, HOT)))
        second = decide(world(waits(A)), state=first.state)
        ids = [
            one
            for result in (first, second)
            for one in (
                result.plan.plan_id,
                *(a.action_id for a in result.plan.actions),
                *(d.decision_id for d in result.plan.decisions),
            )
        ]
        assert len(ids) == len(set(ids)) == 8
        assert second.state.sequence == 2

    def test_a_plan_names_what_it_rests_on(self):
        result = decide(world(waits(A), generation=41))
        assert (result.plan.based_on, result.plan.made_at_s, result.plan.mode) == (
            41,
            100.0,
            Mode.ACTIVE,
        )
        for decision in result.plan.decisions:
            assert explain(decision.reason)
            assert (decision.policy, decision.made_at_s) == ("lru", 100.0)


class TestObserve:
    def test_what_would_be_done_is_said_once_and_marked(self):
        w = world(waits(A), model(B, HOT, mb=30), mode=Mode.OBSERVE)
        assert not is_ordered(w)
        result = decide(w)
        assert [(s, o) for s, o, _ in said(result)] == [(B, Outcome.CHANGE), (A, Outcome.CHANGE)]
        assert all(d.evidence[-1] == ("mode", "observe") for d in result.plan.decisions)
        assert said(decide(w, state=result.state)) == []


class TestNextTick:
    def test_after_the_tick(self):
        assert decide(world(waits(A))).next_tick_at_s == 100.0 + LOOK_S

    def test_or_when_a_cool_down_ends_that_somebody_waits_for(self):
        w = world(
            waits(A, residency=FAILED, cooldown_until_s=100.4),
            model(B, FAILED, cooldown_until_s=100.2),
            waits(C, residency=FAILED, cooldown_until_s=100.0),
        )
        assert decide(w).next_tick_at_s == 100.4


def test_nothing_known_gives_an_empty_plan():
    empty = decide(replace(world(), nodes={}))
    assert (orders(empty), said(empty)) == ([], [])
    assert orders(decide(replace(world(), nodes={NODE: NodeStatus(node=NODE, alive=True)}))) == []


def test_planning_what_was_ordered_orders_nothing_more():
    w = world(waits(A, mb=25), model(B, HOT), model(C, HOT))
    first = decide(w)
    assert len(orders(first)) == 3
    assert orders(decide(commit(w, first.plan), state=first.state)) == []


def test_actions_say_the_wanted_end():
    kinds = {type(a) for a in decide(world(waits(A), model(B, HOT, mb=30))).plan.actions}
    assert kinds == {LoadModel, UnloadModel}
