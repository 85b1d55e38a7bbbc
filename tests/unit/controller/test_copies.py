"""Copies that are not at home: when they have to go."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import NodeConfig
from contracts.events import ActionFailed, ModelUnloaded, UnloadCause
from contracts.ids import NodeId, RequestId
from contracts.messages import UnloadRequested
from contracts.plan import Outcome, PlannerState, UnloadModel
from contracts.reasons import Reason
from contracts.world import NodeStatus, OpenRequest, Residency
from controller.copies import Copy, copies_in_the_way, copies_of, copies_plan
from controller.fold import fold
from controller.routes import load_answer, routing_table
from simulator.memory_ports import MemoryModelServer
from tests.controller_stage import Stage
from tests.worlds import GATEWAY, MIB, NODE, A, B, C, D, config, model, unloaded, world

OTHER = NodeId("other")
HOT, COLD = Residency.HOT, Residency.COLD


def full(*models, copies=(B, C), others_mb=20, alive=True):
    """A 30 MB node; the copies there take 10 MB each and count as used by others."""
    w = world(*models)
    here = replace(
        w.nodes[NODE],
        alive=alive,
        lists=(A, B, C),
        residents=copies,
        used_by_others_bytes=others_mb * MIB,
    )
    there = NodeStatus(node=OTHER, alive=True, lists=(B, C), residents=(B, C))
    return replace(w, nodes={NODE: here, OTHER: there})


def at_other(name, **fields):
    return model(name, HOT, node=OTHER, **fields)


def wanted(mb=20, **fields):
    return model(A, waiting=1, wanted_since_s=90.0, mb=mb, **fields)


class TestInTheWay:
    def test_those_used_longest_ago_go_as_far_as_it_takes(self):
        w = full(wanted(), at_other(B, used_s=50.0), at_other(C, used_s=40.0))
        assert copies_in_the_way(w, config(), ()) == (Copy(C, NODE),)
        w = full(wanted(mb=30), at_other(B, used_s=50.0), at_other(C, used_s=40.0))
        assert copies_in_the_way(w, config(), ()) == (Copy(C, NODE), Copy(B, NODE))

    def test_nothing_goes_for_what_fits(self):
        w = full(wanted(mb=10), at_other(B), at_other(C))
        assert copies_in_the_way(w, config(), ()) == ()

    def test_nor_where_something_of_the_nodes_own_can(self):
        w = full(wanted(mb=10), model(D, HOT), at_other(B), at_other(C))
        assert copies_in_the_way(w, config(), ()) == ()

    def test_nor_where_nobody_waits(self):
        w = full(model(A, mb=20), at_other(B), at_other(C))
        assert copies_in_the_way(w, config(), ()) == ()
        asked = replace(w, operator_loads=frozenset({A}))
        assert copies_in_the_way(asked, config(), ()) == (Copy(B, NODE),)

    def test_nor_in_vain(self):
        w = full(wanted(mb=40), at_other(B), at_other(C))
        assert copies_in_the_way(w, config(), ()) == ()

    def test_one_that_serves_or_whose_size_is_unknown_stays(self):
        w = full(wanted(), at_other(B), at_other(C, used_s=99.0))
        serving = OpenRequest(
            model=B, source=GATEWAY, received_at_s=95.0, dispatched_at_s=95.0, node=NODE
        )
        w = replace(w, requests={**w.requests, RequestId("x"): serving})
        assert copies_in_the_way(w, config(), ()) == (Copy(C, NODE),)
        unknown = full(wanted(), at_other(B, mb=None), at_other(C, used_s=99.0))
        assert copies_in_the_way(unknown, config(), ()) == (Copy(C, NODE),)

    def test_one_that_goes_already_is_enough(self):
        w = full(wanted(), at_other(B), at_other(C))
        assert copies_in_the_way(w, config(), {Copy(B, NODE)}) == ()
        more = full(wanted(mb=30), at_other(B), at_other(C))
        assert copies_in_the_way(more, config(), {Copy(B, NODE)}) == (Copy(C, NODE),)

    def test_nodes_that_are_lost_or_alone_are_left(self):
        assert copies_in_the_way(full(wanted(), at_other(B), alive=False), config(), ()) == ()
        assert copies_in_the_way(world(wanted(mb=99)), config(), ()) == ()

    def test_what_is_no_model_of_ours_is_no_copy(self):
        w = full(wanted(), copies=(D,))
        assert copies_in_the_way(w, config(), ()) == ()


def test_every_copy_of_a_model():
    w = full(at_other(B))
    assert copies_of(w, B) == (Copy(B, NODE),)
    assert copies_of(w, A) == ()
    assert copies_of(full(at_other(B), alive=False), B) == ()


def test_they_are_ordered_and_decided():
    result = copies_plan(
        world(),
        PlannerState(sequence=3),
        (Copy(B, NODE), Copy(C, NODE)),
        cause=UnloadCause.EVICTED,
        reason=Reason.LEAST_RECENTLY_USED,
    )
    first, second = result.plan.actions
    assert isinstance(first, UnloadModel)
    assert (first.model, first.node, first.cause) == (B, NODE, UnloadCause.EVICTED)
    assert first.action_id != second.action_id
    assert result.state.sequence == 4
    decision = result.plan.decisions[1]
    assert (decision.subject, decision.outcome) == (C, Outcome.CHANGE)
    assert decision.evidence == (("node", NODE),)


def test_gateways_are_told_to_leave_it_out():
    w = full(at_other(B))
    found = routing_table(
        w,
        token=1,
        config=config(),
        profiles={},
        draining={},
        aliases={},
        leaving={Copy(B, NODE)},
    )
    assert found.models[B].places == {NODE: Residency.DRAINING, OTHER: HOT}


def test_who_waits_for_its_room_is_not_refused():
    w = full(wanted(), at_other(B))
    state = PlannerState(last_said={A: (Outcome.HOLD, Reason.NEVER_FITS)})
    assert not load_answer(w, state, A).accepted
    answer = load_answer(w, state, A, {Copy(B, NODE)})
    assert (answer.accepted, answer.reason) == (True, Reason.NO_ROOM)
    assert not load_answer(w, state, A, {Copy(B, OTHER)}).accepted


def test_its_memory_is_free_at_once():
    w = full(at_other(B), others_mb=15)
    w = fold(w, replace(unloaded(B, 101.0), node=NODE))
    assert w.nodes[NODE].used_by_others_bytes == 5 * MIB
    assert w.models[B].residency is HOT
    again = fold(w, replace(unloaded(B, 102.0), node=NODE))
    assert again.nodes == w.nodes, "told twice it is free once"
    tight = fold(full(at_other(B), others_mb=5), replace(unloaded(B, 101.0), node=NODE))
    assert tight.nodes[NODE].used_by_others_bytes == 0
    assert fold(w, replace(unloaded(D, 101.0), node=NODE)).nodes == w.nodes
    lost = NodeId("lost")
    assert fold(w, replace(unloaded(B, 101.0), node=lost)).nodes == w.nodes


@pytest.fixture
async def stage():
    stage = Stage()
    stage.config = replace(
        stage.config,
        nodes=(
            NodeConfig(node=NODE, url="http://gpu"),
            NodeConfig(node=OTHER, url="http://other", primary=False),
        ),
    )
    yield stage
    await stage.close()


async def start(stage, *models):
    other = MemoryModelServer(
        stage.clock,
        dict.fromkeys(models, 5.0),
        footprint_bytes=dict.fromkeys(models, 10 * MIB),
        memory_total_bytes=25 * MIB,
    )
    await stage.start(servers={NODE: stage.server, OTHER: other})
    await stage.clock.advance(1.0)
    return other


@pytest.mark.case("P029")
async def test_an_operators_unload_reaches_every_node_and_each_says_how_it_went(stage):
    stage.server.resident.add(A)
    other = await start(stage, A)
    other.resident.add(A)
    await stage.beats(6.0)
    other.busy.add(A)
    await stage.to_controller.send(UnloadRequested(model=A, at_s=stage.now_s))
    await stage.beats(8.0)
    assert A not in stage.server.resident
    assert A in other.resident
    events = await stage.happened()
    gone = [event.node for event in events if isinstance(event, ModelUnloaded)]
    failed = [event for event in events if isinstance(event, ActionFailed)]
    assert gone == [NODE]
    assert [(event.subject, event.error) for event in failed] == [(A, "LocalAI calls it busy")]
    places = (await stage.tables())[-1].models[A].places
    assert places[OTHER] is HOT


async def test_a_load_that_waits_gets_the_room_of_a_copy(stage):
    other = await start(stage, A, B)
    for name in (A, B):
        other.resident.add(name)
    await stage.beats(6.0)  # both are at home over there
    for name in (A, B):
        stage.server.resident.add(name)
    await stage.beats(6.0)
    await stage.want(C)
    await stage.beats(9.0)
    assert C in stage.server.resident
    assert len(stage.server.resident) == 2
    assert other.resident == {A, B}
