"""Where models are: loads, unloads, polls and what was given up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import ActionApplied, LoadCause, NodeLost, PriorityClass, UnloadCause
from contracts.ids import ModelId, NodeId
from contracts.plan import LoadModel, Plan, SetLimits, UnloadModel
from contracts.reasons import Reason
from contracts.world import Mode, NodeStatus, PrefetchTally, Residency
from controller.fold import FOREIGN_LOAD_LIMIT_S, MAX_FAILURE_CHARS, SPARE_S, commit, fold
from tests.worlds import (
    MIB,
    NODE,
    A,
    B,
    given_up,
    load_failed,
    load_started,
    loaded,
    model,
    observed,
    received,
    stamp,
    unloaded,
    world,
)

COLD, LOADING, HOT = Residency.COLD, Residency.LOADING, Residency.HOT
DRAINING, FAILED = Residency.DRAINING, Residency.FAILED
X = ModelId("x")


def after(start, *events):
    for event in events:
        start = fold(start, event)
    return start


def a_plan(*actions):
    return Plan(
        plan_id="p1",
        made_at_s=101.0,
        based_on=0,
        mode=Mode.ACTIVE,
        actions=actions,
        decisions=(),
    )


def load_order(name, cause=LoadCause.DEMAND):
    return LoadModel(action_id="a", model=name, node=NODE, cause=cause, reason=Reason.DEMAND)


class TestLoads:
    def test_ordered_begun_and_done(self):
        w = commit(world(model(A)), a_plan(load_order(A)))
        assert (w.models[A].residency, w.models[A].residency_since_s) == (LOADING, 101.0)
        assert w.models[A].load_cause is LoadCause.DEMAND
        assert w.generation == 1
        # It waited two seconds for its victims; its load time counts from here.
        w = fold(w, load_started(A, 103.0))
        assert (w.models[A].residency, w.models[A].residency_since_s) == (LOADING, 103.0)
        w = fold(w, loaded(A, 110.0, load_s=7.0, mb=12))
        status = w.models[A]
        assert (status.residency, status.residency_since_s) == (HOT, 110.0)
        assert status.footprint_bytes == 12 * MIB
        assert status.last_used_at_s == 110.0
        assert w.demand_loads == 1

    def test_measured_load_times_move_the_estimate_by_three_tenths(self):
        w = after(world(model(A, load_s=None)), load_started(A, 101.0), loaded(A, 111.0, load_s=10))
        assert w.models[A].load_s == 10.0
        w = after(w, unloaded(A, 112.0), load_started(A, 113.0), loaded(A, 133.0, load_s=20.0))
        assert w.models[A].load_s == pytest.approx(13.0)
        w = after(w, unloaded(A, 134.0), load_started(A, 135.0), loaded(A, 140.0))
        assert w.models[A].load_s == pytest.approx(13.0)
        assert w.models[A].footprint_bytes == 10 * MIB

    def test_a_late_end_of_a_load_does_not_move_the_last_use_back(self):
        w = fold(world(model(A, LOADING, used_s=120.0)), loaded(A, 110.0))
        assert w.models[A].last_used_at_s == 120.0

    def test_a_load_that_a_gateway_ran_alone_counts_as_a_cold_start(self):
        w = after(world(model(A)), load_started(A, 101.0, LoadCause.GATEWAY), loaded(A, 105.0))
        assert w.demand_loads == 1
        assert w.models[A].load_cause is LoadCause.GATEWAY

    @pytest.mark.parametrize("cause", [LoadCause.PREFETCH, LoadCause.OPERATOR, LoadCause.EXTERNAL])
    def test_other_loads_are_no_cold_starts(self, cause):
        assert fold(world(model(A)), load_started(A, 101.0, cause)).demand_loads == 0

    def test_a_load_seen_only_at_its_end_brings_its_own_cause(self):
        w = fold(world(model(A)), loaded(A, 105.0, cause=LoadCause.GATEWAY))
        assert (w.models[A].residency, w.models[A].load_cause) == (HOT, LoadCause.GATEWAY)

    def test_a_doubled_start_or_end_changes_nothing(self):
        w = after(world(model(A)), load_started(A, 101.0), loaded(A, 105.0))
        again = after(w, load_started(A, 101.0), loaded(A, 105.0))
        assert again.models == w.models
        assert again.demand_loads == 1

    def test_events_of_unlisted_models_are_passed_over(self):
        start = world(model(A))
        w = after(start, load_started(X, 101.0), loaded(X, 102.0), load_failed(X, 103.0))
        w = after(w, unloaded(X, 104.0), given_up("unload", X, 105.0))
        assert w.models == start.models

    def test_what_was_asked_for_is_granted_when_its_load_begins(self):
        start = world(model(A), model(B))
        w = fold(
            world(
                *start.models.values(),
                operator_loads=frozenset({A, B}),
                preloads=frozenset({A, B}),
            ),
            load_started(A, 101.0, LoadCause.OPERATOR),
        )
        assert w.operator_loads == w.preloads == {B}

    def test_what_was_asked_for_is_granted_when_somebody_else_has_loaded_it(self):
        start = world(model(A), operator_loads=frozenset({A}), preloads=frozenset({A}))
        w = fold(start, loaded(A, 101.0, cause=LoadCause.GATEWAY))
        assert w.operator_loads == w.preloads == frozenset()
        w = fold(start, observed(101.0, A))
        assert w.operator_loads == w.preloads == frozenset()


class TestFailures:
    def test_it_cools_down_for_as_long_as_localai_says(self):
        w = after(world(model(A)), load_started(A, 101.0), load_failed(A, 103.0, retry_after_s=40))
        assert (w.models[A].residency, w.models[A].cooldown_until_s) == (FAILED, 143.0)

    def test_what_localai_said_is_kept_until_it_is_resident(self):
        w = fold(world(model(A, LOADING)), replace(load_failed(A, 103.0), error="x" * 1000))
        assert w.models[A].failure == "x" * MAX_FAILURE_CHARS
        assert after(w, load_started(A, 114.0), loaded(A, 120.0)).models[A].failure == ""

    def test_ten_seconds_where_it_does_not_say(self):
        w = fold(world(model(A, LOADING)), load_failed(A, 103.0))
        assert w.models[A].cooldown_until_s == 113.0

    def test_a_second_at_least(self):
        w = fold(world(model(A, LOADING)), load_failed(A, 103.0, retry_after_s=0.0))
        assert w.models[A].cooldown_until_s == 104.0

    def test_a_failed_load_takes_the_wish_for_it_along(self):
        w = world(model(A, LOADING), operator_loads=frozenset({A}), preloads=frozenset({A}))
        w = fold(w, load_failed(A, 103.0))
        assert w.operator_loads == w.preloads == frozenset()

    def test_the_next_load_ends_the_cool_down(self):
        w = fold(world(model(A, FAILED, cooldown_until_s=120.0)), load_started(A, 105.0))
        assert (w.models[A].residency, w.models[A].cooldown_until_s) == (LOADING, None)

    def test_so_does_a_poll_that_finds_it_resident(self):
        w = fold(world(model(A, FAILED, cooldown_until_s=120.0)), observed(105.0, A))
        assert (w.models[A].residency, w.models[A].cooldown_until_s) == (HOT, None)

    def test_a_failure_told_late_does_not_unseat_a_resident_model(self):
        w = fold(world(model(A, HOT)), load_failed(A, 103.0))
        assert (w.models[A].residency, w.models[A].cooldown_until_s) == (HOT, None)

    def test_a_load_that_was_given_up_leaves_it_cold(self):
        w = fold(world(model(A, LOADING)), given_up("load", A, 103.0))
        assert w.models[A].residency is COLD


class TestUnloads:
    def test_drained_and_gone(self):
        order = UnloadModel(
            action_id="a",
            model=A,
            node=NODE,
            cause=UnloadCause.EVICTED,
            reason=Reason.LEAST_RECENTLY_USED,
        )
        w = commit(world(model(A, HOT, load_cause=LoadCause.DEMAND)), a_plan(order))
        assert (w.models[A].residency, w.models[A].residency_since_s) == (DRAINING, 101.0)
        assert w.models[A].occupied_bytes == 10 * MIB
        w = fold(w, unloaded(A, 102.0))
        assert (w.models[A].residency, w.models[A].load_cause) == (COLD, None)
        assert w.models[A].occupied_bytes == 0

    def test_an_operators_unload_is_done_once_it_is_gone(self):
        w = world(model(A, DRAINING), operator_unloads=frozenset({A}))
        assert fold(w, unloaded(A, 101.0)).operator_unloads == frozenset()

    def test_what_an_operator_unloaded_is_kept_out_until_somebody_asks_for_it(self):
        w = fold(world(model(A, DRAINING), operator_unloads=frozenset({A})), unloaded(A, 101.0))
        assert w.models[A].kept_out
        assert not fold(w, received("r", A, 102.0)).models[A].kept_out
        assert not fold(w, loaded(A, 102.0)).models[A].kept_out
        assert not fold(world(model(A, DRAINING)), unloaded(A, 101.0)).models[A].kept_out

    def test_a_drain_given_up_makes_it_hot_and_spares_it_for_a_while(self):
        w = world(model(A, DRAINING), operator_unloads=frozenset({A}))
        w = fold(w, given_up("unload", A, 101.0))
        assert w.models[A].residency is HOT
        assert w.models[A].spared_until_s == 101.0 + SPARE_S
        assert w.operator_unloads == {A}

    def test_a_doubled_unload_changes_nothing(self):
        w = fold(world(model(A, HOT)), unloaded(A, 101.0))
        assert fold(w, unloaded(A, 101.0)).models == w.models

    def test_what_applies_to_no_model_changes_nothing(self):
        start = world(model(A, HOT))
        applied = ActionApplied(**stamp(101.0), action_id="a", kind="load", subject=A, took_s=1.0)
        for event in (given_up("routes", A, 101.0), applied):
            assert fold(start, event).models == start.models

    def test_actions_without_a_model_commit_nothing(self):
        start = world(model(A))
        limits = SetLimits(
            action_id="a",
            priority=PriorityClass.BATCH,
            slots=1,
            valid_until_s=200.0,
            reason=Reason.OPERATOR,
        )
        assert commit(start, a_plan(limits)).models == start.models


class TestPrefetches:
    def prefetch(self, w):
        return commit(w, a_plan(load_order(A, LoadCause.PREFETCH)))

    def test_unloaded_before_a_use_it_is_wasted(self):
        w = self.prefetch(world(model(A)))
        assert w.prefetches == PrefetchTally(started=1)
        w = after(w, loaded(A, 110.0), unloaded(A, 120.0), unloaded(A, 120.0))
        assert w.prefetches == PrefetchTally(started=1, wasted=1)

    def test_used_and_then_unloaded_it_is_not(self):
        w = after(self.prefetch(world(model(A))), loaded(A, 110.0), received("r", A, 111.0))
        assert fold(w, unloaded(A, 130.0)).prefetches == PrefetchTally(started=1, used=1)

    def test_behind_our_back_it_is_wasted_as_well(self):
        w = after(self.prefetch(world(model(A))), loaded(A, 110.0), observed(115.0))
        assert w.prefetches == PrefetchTally(started=1, wasted=1)

    def test_somebody_who_waits_already_uses_it_at_once(self):
        w = self.prefetch(fold(world(model(A)), received("r", A, 100.5)))
        assert w.prefetches == PrefetchTally(started=1, used=1)

    def test_given_up_before_it_began_or_failed_it_has_wasted_nothing(self):
        for end in (given_up("load", A, 102.0), load_failed(A, 102.0)):
            w = fold(self.prefetch(world(model(A))), end)
            assert w.prefetches == PrefetchTally(started=1)

    def test_a_model_that_comes_back_on_demand_starts_a_new_count(self):
        w = after(self.prefetch(world(model(A))), loaded(A, 110.0), unloaded(A, 120.0))
        w = after(w, load_started(A, 121.0), loaded(A, 130.0), unloaded(A, 140.0))
        assert w.prefetches == PrefetchTally(started=1, wasted=1)


class TestPolls:
    def test_a_poll_finds_what_localai_did_by_itself(self):
        w = fold(world(model(A), model(B, HOT)), observed(105.0, A))
        assert (w.models[A].residency, w.models[A].load_cause) == (HOT, LoadCause.EXTERNAL)
        assert w.models[A].residency_since_s == 105.0
        assert w.models[B].residency is COLD

    def test_what_it_confirms_stays(self):
        start = world(model(A, HOT, since_s=50.0, load_cause=LoadCause.DEMAND), model(B))
        assert fold(start, observed(105.0, A)).models == start.models

    def test_a_poll_that_began_before_a_change_says_nothing_about_it(self):
        w = world(model(A, HOT, since_s=105.0), model(B, since_s=105.5))
        after_ = fold(w, observed(105.0, B))
        assert (after_.models[A].residency, after_.models[B].residency) == (HOT, COLD)

    def test_orders_that_run_are_not_corrected(self):
        w = world(model(A, LOADING, load_cause=LoadCause.DEMAND), model(B, DRAINING))
        assert fold(w, observed(900.0, A)).models[A].residency is LOADING
        assert fold(w, observed(900.0)).models[B].residency is DRAINING

    def test_a_gateways_load_ends_when_the_model_is_seen(self):
        w = world(model(A, LOADING, load_cause=LoadCause.GATEWAY))
        w = fold(w, observed(105.0, A))
        assert (w.models[A].residency, w.models[A].load_cause) == (HOT, LoadCause.GATEWAY)

    def test_or_when_it_is_not_seen_for_too_long(self):
        w = world(model(A, LOADING, load_cause=LoadCause.GATEWAY))
        assert fold(w, observed(FOREIGN_LOAD_LIMIT_S)).models[A].residency is LOADING
        assert fold(w, observed(FOREIGN_LOAD_LIMIT_S + 1.0)).models[A].residency is COLD

    def test_memory_that_is_not_ours_belongs_to_others(self):
        w = fold(world(model(A, HOT, mb=10)), observed(105.0, A, total_mb=40, used_mb=16))
        node = w.nodes[NODE]
        assert node == NodeStatus(
            node=NODE,
            alive=True,
            seen_at_s=105.0,
            residents=(A,),
            memory_total_bytes=40 * MIB,
            memory_used_bytes=16 * MIB,
            used_by_others_bytes=6 * MIB,
        )

    def test_less_than_ours_or_not_told_means_nobody_else(self):
        w = fold(world(model(A, HOT, mb=10)), observed(105.0, A, used_mb=4))
        assert w.nodes[NODE].used_by_others_bytes == 0
        w = fold(w, observed(106.0, A, total_mb=None, used_mb=None, model_limit=3))
        node = w.nodes[NODE]
        assert (node.used_by_others_bytes, node.memory_used_bytes) == (0, None)
        assert (node.memory_total_bytes, node.model_limit) == (None, 3)

    def test_a_lost_node_comes_back_with_the_next_poll(self):
        lost = NodeLost(**stamp(105.0), node=NODE, error="gone")
        w = fold(world(model(A, HOT)), lost)
        assert not w.nodes[NODE].alive
        assert w.models[A].residency is HOT
        assert fold(w, observed(106.0, A)).nodes[NODE].alive

    def test_a_node_that_nobody_named_before_is_taken_in(self):
        lost = NodeLost(**stamp(105.0), node=NodeId("new"), error="gone")
        assert fold(world(model(A)), lost).nodes[NodeId("new")] == NodeStatus(node=NodeId("new"))

    def test_other_nodes_models_are_left_alone(self):
        other = model(B, HOT, node=NodeId("other"))
        assert fold(world(model(A), other), observed(105.0)).models[B].residency is HOT
