"""What becomes of orders when their leader stops leading."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from contracts.config import ControllerConfig
from contracts.events import AnyEvent, LoadCause, ModelLoaded, UnloadCause
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import GatewayBeat
from contracts.plan import LoadModel, Plan, UnloadModel
from contracts.reasons import Reason
from contracts.world import Mode
from controller.reconciler import Reconciler
from controller.roster import Roster
from controller.stamps import Stamp
from simulator.memory_ports import MemoryModelServer, VirtualClock

A, B, NODE = ModelId("a"), ModelId("b"), NodeId("n")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1000.0)


@pytest.fixture
def server(clock: VirtualClock) -> MemoryModelServer:
    return MemoryModelServer(clock, {A: 8.0, B: 8.0})


@pytest.fixture
def events() -> list[AnyEvent]:
    return []


@pytest.fixture
def reconciler(
    clock: VirtualClock, server: MemoryModelServer, events: list[AnyEvent]
) -> Reconciler:
    numbers: Iterator[int] = count()
    return Reconciler(
        clock=clock,
        servers={NODE: server},
        config=ControllerConfig(),
        stamp=lambda: Stamp(event_id=f"e{next(numbers)}", at_s=clock.now_s(), source="c"),
        emit=events.append,
        drains_changed=lambda: None,
        leads=lambda: True,
    )


def plan(*actions: LoadModel | UnloadModel) -> Plan:
    return Plan(
        plan_id="p",
        made_at_s=1000.0,
        based_on=1,
        mode=Mode.ACTIVE,
        actions=actions,
        decisions=(),
    )


def load(model: ModelId, after: tuple[ModelId, ...] = ()) -> LoadModel:
    return LoadModel(
        action_id=f"load-{model}",
        model=model,
        node=NODE,
        cause=LoadCause.DEMAND,
        reason=Reason.DEMAND,
        after=after,
    )


def unload(model: ModelId) -> UnloadModel:
    return UnloadModel(
        action_id=f"unload-{model}",
        model=model,
        node=NODE,
        cause=UnloadCause.EVICTED,
        reason=Reason.LEAST_RECENTLY_USED,
    )


async def test_a_load_that_runs_ends_well_although_its_leader_has_gone(
    clock: VirtualClock,
    server: MemoryModelServer,
    reconciler: Reconciler,
    events: list[AnyEvent],
):
    reconciler.order(plan(load(A)))
    await clock.advance(3.0)
    await reconciler.close()
    await clock.advance(5.0)
    assert A in server.resident
    assert [type(event) for event in events].count(ModelLoaded) == 1


async def test_a_drain_and_the_load_behind_it_are_given_up(
    clock: VirtualClock, server: MemoryModelServer, reconciler: Reconciler
):
    await clock.run(server.load(B))
    silent = GatewayBeat(gateway=GatewayId("g"), at_s=clock.now_s())
    reconciler.heard(Roster().heard(silent))
    reconciler.order(plan(unload(B), load(A, after=(B,))))
    await clock.advance(1.0)
    assert reconciler.draining == {B: "unload-b"}
    await reconciler.close()
    await clock.advance(20.0)
    assert server.resident == {B}
    assert reconciler.draining == {}
