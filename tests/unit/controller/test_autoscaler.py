"""The autoscaler's shell: whom it asks, what it orders, what it says, and what it leaves alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.errors import Transient
from contracts.events import PriorityClass
from contracts.ids import ModelId, RequestId
from contracts.plan import Outcome
from contracts.reasons import Reason
from contracts.scaling import ScalerKind, ScalingTarget
from contracts.world import Mode, OpenRequest, WorldSnapshot
from controller.scaling.autoscaler import Autoscaler, ScalingPorts
from simulator.clock import VirtualClock
from simulator.memory_ports import (
    MemoryDecisionJournal,
    MemoryForecastStore,
    MemorySnapshotStore,
)
from simulator.memory_scaling import MemoryScaler, MemoryScalingStore

CHAT = ScalingTarget(
    name="chat", capacity=1.0, utilisation=1.0, largest=5, kind=ScalerKind.COMPOSE, place="localai"
)


class Stage:
    """One autoscaler over memory, and a world with so many requests."""

    def __init__(self, *targets: ScalingTarget) -> None:
        self.clock = VirtualClock()
        self.snapshots = MemorySnapshotStore()
        self.journal = MemoryDecisionJournal()
        self.store = MemoryScalingStore()
        self.scaler = MemoryScaler({"localai": 1})
        self.leads = True
        self.mode = Mode.ACTIVE
        self.autoscaler = Autoscaler(
            targets or (CHAT,),
            ScalingPorts(
                clock=self.clock,
                snapshots=self.snapshots,
                forecasts=MemoryForecastStore(),
                journal=self.journal,
                store=self.store,
                scalers={ScalerKind.COMPOSE: self.scaler},
            ),
            leads=lambda: self.leads,
        )

    async def look(self, requests: int, *, age_s: float = 0.0) -> None:
        now_s = self.clock.now_s()
        one = OpenRequest(
            model=ModelId("a"),
            source="g",
            received_at_s=now_s,
            dispatched_at_s=now_s,
            priority=PriorityClass.REALTIME,
        )
        world = WorldSnapshot(
            taken_at_s=now_s - age_s,
            mode=self.mode,
            requests={RequestId(str(n)): one for n in range(requests)},
        )
        await self.snapshots.put_world(world)
        await self.autoscaler.look()

    async def said(self) -> list[tuple[Outcome, Reason]]:
        entries = await self.journal.newest(limit=100)
        return [(one.value.outcome, one.value.reason) for one in reversed(entries)]


async def test_it_orders_what_is_needed_and_says_so_once():
    stage = Stage()
    await stage.look(2)
    await stage.look(2)
    assert stage.scaler.orders == [("localai", 2)]
    assert (await stage.store.scalings())["chat"].replicas == 2
    assert await stage.said() == [
        (Outcome.CHANGE, Reason.LIVE_NEED),
        (Outcome.HOLD, Reason.STARTING),
    ]


@pytest.mark.parametrize("held", ["dry run", "mode"])
async def test_what_is_only_looked_at_is_said_and_not_ordered(held: str):
    stage = Stage(replace(CHAT, dry_run=held == "dry run"))
    stage.mode = Mode.OBSERVE if held == "mode" else Mode.ACTIVE
    await stage.look(2)
    await stage.look(2)
    assert stage.scaler.orders == []
    assert await stage.said() == [(Outcome.CHANGE, Reason.LIVE_NEED)]


async def test_a_scaler_that_refuses_is_asked_again_later_and_later():
    stage = Stage()
    stage.scaler.dead = True
    await stage.look(2)
    stage.scaler.dead = False
    await stage.look(2)
    assert stage.scaler.orders == []
    await stage.clock.advance(6.0)
    await stage.look(2)
    assert stage.scaler.orders == [("localai", 2)]
    assert await stage.said() == [
        (Outcome.CHANGE, Reason.SCALER_FAILED),
        (Outcome.CHANGE, Reason.LIVE_NEED),
    ]


async def test_a_number_that_others_read_goes_on_from_what_was_said_before():
    read = replace(CHAT, kind=ScalerKind.READ)
    stage = Stage(read)
    await stage.look(3)
    heir = Stage(read)
    heir.store = stage.store
    heir.autoscaler._ports = replace(heir.autoscaler._ports, store=stage.store)
    await heir.look(1)
    assert (await heir.store.scalings())["chat"].replicas == 3


async def test_an_old_world_decides_nothing():
    stage = Stage()
    await stage.autoscaler.look()
    await stage.look(3, age_s=31.0)
    assert await stage.store.scalings() == {}


async def test_a_store_that_is_away_is_waited_for():
    stage = Stage()
    stage.store.fault = Transient("away")
    await stage.look(2)
    assert stage.scaler.orders == []
    stage.store.fault = None
    await stage.look(2)
    assert stage.scaler.orders == [("localai", 2)]


async def test_one_target_that_cannot_be_asked_holds_up_no_other():
    stage = Stage(replace(CHAT, name="a", place="x"), CHAT)

    async def broken(place: str):
        if place == "x":
            raise Transient("no answer")
        return await MemoryScaler.replicas(stage.scaler, place)

    stage.scaler.replicas = broken  # type: ignore[method-assign]
    await stage.look(2)
    assert set(await stage.store.scalings()) == {"chat"}


async def test_targets_may_change_and_what_stays_remembers():
    stage = Stage()
    await stage.look(2)
    stage.autoscaler.reconfigure((replace(CHAT, largest=3), replace(CHAT, name="b")))
    await stage.look(3)
    assert set(await stage.store.scalings()) == {"chat", "b"}
    stage.autoscaler.reconfigure(())
    await stage.look(5)
    assert (await stage.store.scalings())["chat"].replicas == 3


async def test_what_serves_is_told_where_somebody_tells_us_and_only_then():
    stage = Stage(CHAT, replace(CHAT, name="read", kind=ScalerKind.READ))
    await stage.look(3)
    scalings = await stage.store.scalings()
    assert (scalings["chat"].current, scalings["chat"].needed, scalings["chat"].most) == (1, 3, 5)
    assert scalings["read"].current is None
