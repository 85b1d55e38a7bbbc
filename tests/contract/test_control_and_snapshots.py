from __future__ import annotations

import pytest

from adapters.redis_stores import RedisControlStore, RedisSnapshotStore
from contracts.errors import NotLeader
from contracts.events import LoadCause, PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.ports import ControlStore, SnapshotStore
from contracts.routing import NodeRoute, RoutingTable
from contracts.world import (
    GpuYield,
    Mode,
    ModelStatus,
    NodeStatus,
    PrefetchTally,
    QueueStatus,
    Residency,
    Sla,
    WorldSnapshot,
)
from simulator.memory_ports import MemoryControlStore, MemorySnapshotStore

A, B = ModelId("a"), ModelId("org/b")
NODE = NodeId("n")


@pytest.fixture
def control(backend) -> ControlStore:
    return MemoryControlStore() if backend.client is None else RedisControlStore(backend.client)


@pytest.fixture
def snapshots(backend) -> SnapshotStore:
    return MemorySnapshotStore() if backend.client is None else RedisSnapshotStore(backend.client)


async def test_slas_are_put_replaced_and_deleted(control: ControlStore):
    assert await control.slas() == {}
    await control.put_sla(Sla(model=A, target_s=2.0))
    await control.put_sla(Sla(model=B, target_s=5.0, priority=PriorityClass.BATCH, weight=0.5))
    await control.put_sla(Sla(model=A, target_s=1.0, percentile=99.0))
    assert await control.slas() == {
        A: Sla(model=A, target_s=1.0, percentile=99.0),
        B: Sla(model=B, target_s=5.0, priority=PriorityClass.BATCH, weight=0.5),
    }
    assert await control.delete_sla(A)
    assert not await control.delete_sla(A)
    assert set(await control.slas()) == {B}


async def test_pins(control: ControlStore):
    assert await control.pins() == frozenset()
    await control.set_pin(A, pinned=True)
    await control.set_pin(B, pinned=True)
    await control.set_pin(B, pinned=True)
    assert await control.pins() == {A, B}
    await control.set_pin(A, pinned=False)
    await control.set_pin(A, pinned=False)
    assert await control.pins() == {B}


async def test_the_mode_is_unknown_until_somebody_sets_it(control: ControlStore):
    assert await control.mode() is None
    for mode in Mode:
        await control.set_mode(mode)
        assert await control.mode() is mode


async def test_the_gpu_is_nobody_elses_until_somebody_says_so(control: ControlStore):
    assert await control.gpu_yield() is None
    wish = GpuYield(since_s=5.0, until_s=65.0, keep_bytes=10**9, note="a game")
    await control.set_gpu_yield(wish)
    assert await control.gpu_yield() == wish
    assert wish.holds(64.0)
    assert not wish.holds(65.0)
    await control.set_gpu_yield(None)
    assert await control.gpu_yield() is None


def world() -> WorldSnapshot:
    return WorldSnapshot(
        taken_at_s=100.25,
        generation=7,
        mode=Mode.ACTIVE,
        nodes={NODE: NodeStatus(node=NODE, alive=True, budget_bytes=48 * 10**9)},
        models={
            B: ModelStatus(
                model=B, node=NODE, residency=Residency.HOT, load_cause=LoadCause.PREFETCH
            )
        },
        slas={B: Sla(model=B, target_s=2.0)},
        queues=(QueueStatus(priority=PriorityClass.REALTIME, waiting=1, capacity=10),),
        prefetches=PrefetchTally(started=3, used=2, wasted=1),
    )


async def test_the_newest_world_is_kept(snapshots: SnapshotStore):
    assert await snapshots.world() is None
    await snapshots.put_world(WorldSnapshot(taken_at_s=1.0))
    await snapshots.put_world(world())
    assert await snapshots.world() == world()


def table(token: int, made_at_s: float = 1.0) -> RoutingTable:
    return RoutingTable(
        token=token,
        made_at_s=made_at_s,
        mode=Mode.OBSERVE,
        nodes={NODE: NodeRoute(node=NODE, alive=True, free_bytes=None)},
        aliases={"gpt-4": B},
        draining={B: "drain-1"},
    )


async def test_the_newest_routing_table_is_kept(snapshots: SnapshotStore):
    assert await snapshots.routing() is None
    await snapshots.put_routing(table(5))
    await snapshots.put_routing(table(5, made_at_s=2.0))
    await snapshots.put_routing(table(6, made_at_s=3.0))
    assert await snapshots.routing() == table(6, made_at_s=3.0)


async def test_a_leader_of_yesterday_cannot_put_its_table_back(snapshots: SnapshotStore):
    await snapshots.put_routing(table(1_786_000_000_001))
    with pytest.raises(NotLeader):
        await snapshots.put_routing(table(1_786_000_000_000, made_at_s=9.0))
    assert await snapshots.routing() == table(1_786_000_000_001)


async def test_baselines_are_kept_by_name(snapshots: SnapshotStore):
    assert await snapshots.baselines() == {}
    await snapshots.put_baseline("lru", {"cold": 3.0})
    await snapshots.put_baseline("lru", {"cold": 4.0, "loads": 9})
    await snapshots.put_baseline("gdsf", {})
    assert await snapshots.baselines() == {"lru": {"cold": 4.0, "loads": 9.0}, "gdsf": {}}
