"""What gateways are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import ModelProfile
from contracts.events import PriorityClass
from contracts.ids import NodeId
from contracts.plan import Outcome, PlannerState
from contracts.reasons import Reason, explain
from contracts.routing import ModelRoute, NodeRoute
from contracts.world import Mode, NodeStatus, Residency, Sla
from controller.copies import Copy
from controller.routes import TABLE_REPEAT_S, USE_S, is_news, load_answer, routing_table
from tests.worlds import MIB, NODE, A, B, C, config, model, world


def table(w, **fields):
    arguments = {
        "token": 7,
        "config": config(),
        "profiles": {},
        "draining": {},
        "aliases": {},
        **fields,
    }
    return routing_table(w, **arguments)


class TestTable:
    def test_it_says_where_each_model_is(self):
        hot = model(A, Residency.HOT, used_s=90.0, load_s=None, mb=1200, pinned=True)
        loading = model(B, Residency.LOADING, since_s=95.0)
        failed = replace(model(C, Residency.FAILED, cooldown_until_s=110.0), failure="no file")
        found = table(world(hot, loading, failed))
        assert found.models == {
            A: ModelRoute(
                model=A,
                node=NODE,
                residency=Residency.HOT,
                expected_load_s=1.0 + 1200 * MIB / 600e6,
                last_used_at_s=90.0,
                footprint_bytes=1200 * MIB,
                pinned=True,
            ),
            B: ModelRoute(
                model=B,
                node=NODE,
                residency=Residency.LOADING,
                expected_load_s=8.0,
                load_started_at_s=95.0,
                footprint_bytes=10 * MIB,
            ),
            C: ModelRoute(
                model=C,
                node=NODE,
                residency=Residency.FAILED,
                expected_load_s=8.0,
                cooldown_until_s=110.0,
                failure="no file",
                footprint_bytes=10 * MIB,
            ),
        }

    def test_it_carries_the_token_the_mode_and_what_drains(self):
        found = table(
            world(model(A), mode=Mode.OBSERVE, now_s=123.0), draining={A: "d1"}, aliases={"best": A}
        )
        assert (found.token, found.made_at_s, found.mode) == (7, 123.0, Mode.OBSERVE)
        assert (found.draining, found.aliases) == ({A: "d1"}, {"best": A})

    def test_it_says_how_many_slots_a_model_has_and_whose_work_may_be_cancelled(self):
        profiles = {A: ModelProfile(model=A, slots=4), B: ModelProfile(model=B)}
        found = table(world(model(A), model(B), model(C)), profiles=profiles, preempting={A})
        assert [found.models[name].slots for name in (A, B, C)] == [4, None, None]
        assert found.preempting == {A}

    def test_it_says_how_much_room_a_node_has(self):
        w = world(model(A, Residency.HOT, mb=10), mb=30)
        assert table(w).nodes == {NODE: NodeRoute(node=NODE, alive=True, free_bytes=20 * MIB)}
        assert table(world(model(A), mb=None, alive=False)).nodes == {
            NODE: NodeRoute(node=NODE, alive=False, free_bytes=None)
        }

    def test_a_targets_class_stands_over_a_profiles(self):
        profiles = {
            A: ModelProfile(model=A, priority=PriorityClass.BATCH),
            B: ModelProfile(model=B, priority=PriorityClass.BATCH),
            C: ModelProfile(model=C),
        }
        slas = {B: Sla(model=B, target_s=1.0, priority=PriorityClass.REALTIME)}
        found = table(world(model(A), model(B), model(C), slas=slas), profiles=profiles)
        assert found.classes == {A: PriorityClass.BATCH, B: PriorityClass.REALTIME}


def answer(w, said=None):
    return load_answer(w, PlannerState(last_said=said or {}), A)


def test_a_model_on_the_host_needs_none_of_the_cards():
    w = world(model(A, mb=20, on_host=True), model(B, mb=None))
    assert table(w).models[A].footprint_bytes == 20 * MIB, "the node has no cards"
    w = replace(w, nodes={NODE: replace(w.nodes[NODE], accelerator="cuda")})
    assert table(w).models[A].footprint_bytes == 0
    assert table(w).models[B].footprint_bytes is None


class TestAnswer:
    def test_a_load_that_begins_is_accepted_with_its_length(self):
        found = answer(world(model(A)), {A: (Outcome.CHANGE, Reason.DEMAND)})
        assert (found.model, found.accepted, found.reason) == (A, True, Reason.DEMAND)
        assert found.expected_s == 8.0

    @pytest.mark.parametrize(("since_s", "rest_s"), [(97.0, 5.0), (90.0, 0.0)])
    def test_one_that_runs_with_the_rest(self, since_s, rest_s):
        found = answer(world(model(A, Residency.LOADING, since_s=since_s), now_s=100.0))
        assert (found.accepted, found.reason) == (True, Reason.LOADING)
        assert found.expected_s == rest_s

    def test_one_that_waits_for_room_with_the_whole(self):
        found = answer(world(model(A)), {A: (Outcome.HOLD, Reason.NO_ROOM)})
        assert (found.accepted, found.reason, found.expected_s) == (True, Reason.NO_ROOM, 8.0)

    def test_a_resident_model_needs_no_wait(self):
        found = answer(world(model(A, Residency.HOT)))
        assert (found.accepted, found.reason, found.expected_s) == (True, Reason.RESIDENT, 0.0)

    def test_why_a_draining_model_goes_is_not_why_its_caller_waits(self):
        w = world(model(A, Residency.DRAINING))
        found = answer(w, {A: (Outcome.CHANGE, Reason.LEAST_RECENTLY_USED)})
        assert (found.accepted, found.reason, found.expected_s) == (True, Reason.DRAINING, 8.0)

    def test_a_model_in_cool_down_is_refused_until_its_end(self):
        w = world(model(A, Residency.FAILED, cooldown_until_s=107.0), now_s=100.0)
        found = answer(w, {A: (Outcome.HOLD, Reason.COOL_DOWN)})
        assert (found.accepted, found.reason) == (False, Reason.COOL_DOWN)
        assert found.retry_after_s == 7.0
        assert found.message == f"a: {explain(Reason.COOL_DOWN)}"

    def test_a_model_larger_than_the_memory_is_refused_for_good(self):
        found = answer(world(model(A)), {A: (Outcome.HOLD, Reason.NEVER_FITS)})
        assert (found.accepted, found.reason) == (False, Reason.NEVER_FITS)
        assert found.retry_after_s is None

    def test_an_unlisted_model_is_refused(self):
        found = load_answer(world(model(B)), PlannerState(), A)
        assert (found.accepted, found.reason) == (False, Reason.UNKNOWN_MODEL)

    def test_nothing_is_promised_while_nothing_is_ordered(self):
        found = answer(world(model(A), mode=Mode.OBSERVE), {A: (Outcome.CHANGE, Reason.DEMAND)})
        assert (found.accepted, found.reason) == (False, Reason.OBSERVE_ONLY)

    def test_a_lost_node_is_asked_again_in_a_second(self):
        found = answer(world(model(A), alive=False))
        assert (found.accepted, found.reason, found.retry_after_s) == (
            False,
            Reason.NODE_LOST,
            1.0,
        )


def test_a_table_is_news_when_it_changed_or_after_a_while():
    first = table(world(model(A), now_s=100.0))
    same = table(world(model(A), now_s=101.0))
    other = table(world(model(A), model(B), now_s=101.0))
    later = table(world(model(A), now_s=100.0 + TABLE_REPEAT_S))
    assert is_news(first, None)
    assert not is_news(same, first)
    assert is_news(other, first)
    assert is_news(later, first)


def test_what_only_traffic_changes_is_told_once_a_second():
    def used(now_s):
        return table(world(model(A, Residency.HOT, used_s=now_s), model(B), now_s=now_s))

    first = used(100.0)
    assert not is_news(used(100.5), first)
    assert is_news(used(100.0 + USE_S), first)
    loads = table(world(model(A, Residency.HOT), model(B, Residency.LOADING), now_s=100.1))
    assert is_news(loads, first)


def test_nodes_that_know_a_model_are_told_with_what_is_there():
    two, three = NodeId("two"), NodeId("three")
    one = world(model(A, Residency.HOT), model(B), now_s=100.0)
    nodes = {
        **{name: replace(node, lists=(A, B), residents=(A,)) for name, node in one.nodes.items()},
        two: NodeStatus(node=two, alive=True, lists=(A,), residents=(A, C)),
        three: NodeStatus(node=three, alive=True, lists=(A,), residents=(A,)),
    }
    found = table(replace(one, nodes=nodes), leaving=(Copy(A, three), Copy(C, two)))
    assert found.models[A].places == {
        NODE: Residency.HOT,
        two: Residency.HOT,
        three: Residency.DRAINING,
    }
    assert found.models[B].places == {}
