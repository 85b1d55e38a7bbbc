"""One controller over several LocalAIs: homes, failover and ghosts, in virtual time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import NodeConfig
from contracts.errors import Transient
from contracts.events import ModelLoadFailed, ModelLoadStarted, ModelUnloaded, NodeLost, UnloadCause
from contracts.ids import NodeId
from contracts.messages import GhostSeen
from contracts.reasons import Reason
from contracts.world import Residency
from simulator.memory_ports import MemoryModelServer
from tests.controller_stage import GATEWAY, MIB, NODE, A, B, C, Stage

OTHER = NodeId("other")


@pytest.fixture
async def stage():
    stage = Stage()
    stage.config = replace(
        stage.config,
        nodes=(
            NodeConfig(node=NODE, url="http://gpu", accelerator="cuda"),
            NodeConfig(node=OTHER, url="http://other", accelerator="rocm", primary=False),
        ),
    )
    yield stage
    await stage.close()


def another(stage, *models):
    return MemoryModelServer(
        stage.clock,
        dict.fromkeys(models, 5.0),
        footprint_bytes=dict.fromkeys(models, 10 * MIB),
        memory_total_bytes=25 * MIB,
    )


async def start(stage, *models):
    other = another(stage, *models)
    await stage.start(servers={NODE: stage.server, OTHER: other})
    await stage.clock.advance(1.0)
    return other


async def test_the_table_says_who_knows_what_and_on_which_hardware(stage):
    other = another(stage, A, B)
    other.resident.add(B)
    await stage.start(servers={NODE: stage.server, OTHER: other})
    await stage.clock.advance(1.0)
    table = (await stage.tables())[-1]
    assert table.models[A].places.keys() == {NODE, OTHER}
    # resident over there, so that is its home
    assert (table.models[B].node, table.models[B].residency) == (OTHER, Residency.HOT)
    assert table.models[C].places == {}
    assert table.nodes[OTHER].accelerator == "rocm"


async def test_a_node_that_dies_with_a_load_hands_it_on(stage):
    other = await start(stage, A)
    await stage.want(A)
    await stage.clock.advance(2.0)
    assert stage.calls()[-1][1:] == ("load_started", A)
    stage.server.fault = Transient("connection refused")
    await stage.clock.advance(10.0)
    assert A in other.resident
    events = await stage.happened()
    assert NodeLost in map(type, events)
    starts = [event.node for event in events if isinstance(event, ModelLoadStarted)]
    assert starts == [NODE, OTHER]
    assert not any(
        table.models[A].residency is Residency.FAILED
        for table in await stage.tables()
        if A in table.models
    ), "nobody is told of a cool-down"
    decisions = [each for each in await stage.decisions() if each.policy == "homes"]
    assert [each.reason for each in decisions] == [Reason.NODE_LOST]


async def test_it_comes_back_as_another_copy(stage):
    stage.server.resident.add(A)
    other = await start(stage, A)
    stage.server.fault = Transient("connection refused")
    await stage.clock.advance(6.0)
    await stage.want(A)
    await stage.clock.advance(6.0)
    assert A in other.resident
    stage.server.fault = None
    await stage.clock.advance(6.0)
    route = (await stage.tables())[-1].models[A]
    assert route.node == OTHER
    assert route.places == {NODE: Residency.HOT, OTHER: Residency.HOT}


async def test_a_ghost_is_cleared_and_loaded_again_for_who_waits(stage):
    await stage.start()
    await stage.want(A)
    await stage.clock.advance(6.0)
    stage.server.kill_process(A)
    await stage.to_controller.send(GhostSeen(gateway=GATEWAY, model=A, node=NODE, at_s=stage.now_s))
    await stage.want(A, "r2")
    await stage.clock.advance(6.0)
    assert A in stage.server.resident
    assert A not in stage.server.dead
    (gone,) = [e for e in await stage.happened() if isinstance(e, ModelUnloaded)]
    assert gone.cause is UnloadCause.GHOST
    assert Reason.GHOST in {each.reason for each in await stage.decisions()}


async def test_what_was_no_ghost_goes_on(stage):
    await stage.start()
    await stage.want(A)
    await stage.clock.advance(6.0)
    seen = GhostSeen(gateway=GATEWAY, model=A, node=NODE, at_s=stage.now_s)
    await stage.to_controller.send(seen)
    await stage.to_controller.send(replace(seen, model=B))
    await stage.clock.advance(1.0)
    assert A in stage.server.resident
    assert (await stage.tables())[-1].models[A].residency is Residency.HOT


async def test_a_load_that_failed_by_itself_stays_where_it_is(stage):
    other = await start(stage, A)
    stage.server.fail_loads(A, Transient("no memory", retry_after_s=10.0))
    await stage.want(A)
    await stage.clock.advance(6.0)
    assert ModelLoadFailed in map(type, await stage.happened())
    assert other.calls == []
    assert (await stage.tables())[-1].models[A].residency is Residency.FAILED
