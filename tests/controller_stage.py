"""A controller on ports in memory and a clock of the test's own, with one LocalAI."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from contracts.config import ControllerConfig, ModelProfile, PlannerConfig
from contracts.errors import HeadstartError
from contracts.events import AnyEvent, RequestDispatched, RequestReceived
from contracts.ids import GatewayId, ModelId, NodeId, RequestId
from contracts.messages import GatewayBeat, LoadAnswer, LoadWanted, ToController, ToGateways
from contracts.plan import Decision
from contracts.ports import WeightCache
from contracts.routing import RoutingTable
from contracts.world import Mode, WorldSnapshot
from controller.loop import ControlLoop
from controller.ports import DeclaredProfile, Ports, nothing_declared
from controller.sight import Sight
from simulator.clock import VirtualClock
from simulator.memory_ports import (
    MemoryControlStore,
    MemoryDecisionJournal,
    MemoryEventLog,
    MemoryForecastStore,
    MemoryLease,
    MemoryMailbox,
    MemoryModelServer,
    MemorySnapshotStore,
)
from simulator.memory_profiles import MemoryProfileStore
from tests import worlds

MIB = worlds.MIB
NODE = worlds.NODE
A, B, C = worlds.A, worlds.B, worlds.C
GATEWAY = GatewayId("gw")
LEASE_S = 10.0
START_S = 1_000_000.0

RECEIVES = 1.0
"""Enough virtual time for whatever waits to be read, planned and answered."""


class Stage:
    """Three models of 10 MB that load in 5 s, in 25 MB. Times are counted from the start."""

    def __init__(self, **planner: Any) -> None:
        self.clock = VirtualClock(START_S)
        self.events = MemoryEventLog(clock=self.clock)
        self.to_controller: MemoryMailbox[ToController] = MemoryMailbox(clock=self.clock)
        self.to_gateways: MemoryMailbox[ToGateways] = MemoryMailbox(clock=self.clock)
        self.forecasts = MemoryForecastStore(clock=self.clock)
        self.journal = MemoryDecisionJournal(clock=self.clock)
        self.controls = MemoryControlStore()
        self.snapshots = MemorySnapshotStore()
        self.profiles = MemoryProfileStore()
        self.lease = MemoryLease()
        self.server = MemoryModelServer(
            self.clock,
            dict.fromkeys((A, B, C), 5.0),
            footprint_bytes=dict.fromkeys((A, B, C), 10 * MIB),
            memory_total_bytes=25 * MIB,
            aliases={"best": A},
        )
        self.config = ControllerConfig(
            planner=replace(PlannerConfig(policy="lru", reserve_ratio=0.0), **planner),
            active_by_default=True,
            lease_s=LEASE_S,
        )
        self.sights: dict[NodeId, Sight] = {}
        self.weights: dict[NodeId, WeightCache] = {}
        self.declared: DeclaredProfile = nothing_declared
        self._running: dict[str, asyncio.Task[None]] = {}
        self._loops: dict[str, ControlLoop] = {}
        self._places: dict[str, str] = {"gateways": "0", "events": "0", "journal": "0"}
        self._numbers = itertools.count(1)

    def with_profiles(self, *profiles: ModelProfile) -> None:
        self.config = replace(self.config, profiles={p.model: p for p in profiles})

    async def start(self, owner: str = "one", *, servers: Mapping[NodeId, Any] | None = None):
        """A controller process begins; it has led and looked around when this returns."""
        loop = ControlLoop(
            owner,
            Ports(
                clock=self.clock,
                events=self.events,
                to_controller=self.to_controller,
                to_gateways=self.to_gateways,
                forecasts=self.forecasts,
                journal=self.journal,
                controls=self.controls,
                snapshots=self.snapshots,
                profiles=self.profiles,
                lease=self.lease,
                servers=servers or {NODE: self.server},
                sights=self.sights,
                weights=self.weights,
                declared=self.declared,
            ),
            self.config,
        )
        self._loops[owner] = loop
        self._running[owner] = asyncio.create_task(loop.run())
        await self.clock.advance(0.0)
        return loop

    def loop(self, owner: str = "one") -> ControlLoop:
        """The controller process itself."""
        return self._loops[owner]

    async def stop(self, owner: str = "one") -> None:
        """As on SIGTERM."""
        await self.kill(owner)
        await self._loops.pop(owner).release()

    async def kill(self, owner: str = "one") -> None:
        """It ends without giving its lease back."""
        task = self._running.pop(owner)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        for owner in list(self._running):
            await self.kill(owner)

    def crashed(self, owner: str = "one") -> bool:
        return self._running[owner].done()

    def fault(self, error: HeadstartError | None) -> None:
        """Redis is away, or back."""
        for port in (
            self.events,
            self.to_controller,
            self.to_gateways,
            self.forecasts,
            self.journal,
            self.controls,
            self.snapshots,
            self.lease,
        ):
            port.fault = error

    @property
    def now_s(self) -> float:
        return self.clock.now_s()

    async def beat(self, **fields: Any) -> None:
        await self.to_controller.send(GatewayBeat(gateway=GATEWAY, at_s=self.now_s, **fields))

    async def beats(self, seconds: float, **fields: Any) -> None:
        """A gateway beats each second meanwhile, and acknowledges every drain."""
        end_s = self.now_s + seconds
        while self.now_s < end_s:
            table = await self.snapshots.routing() if self.snapshots.fault is None else None
            drains = tuple(table.draining.values()) if table else ()
            if self.to_controller.fault is None:
                await self.beat(drains=drains, **fields)
            await self.clock.advance(min(0.25, end_s - self.now_s))

    async def want(self, model: ModelId, request: str = "r1") -> None:
        await self.to_controller.send(
            LoadWanted(
                gateway=GATEWAY,
                request_id=RequestId(request),
                model=model,
                at_s=self.now_s,
                deadline_s=self.now_s + 60.0,
            )
        )

    async def log(self, *events: AnyEvent) -> None:
        await self.events.append(events)

    def received(self, request: str, model: ModelId, source: str = GATEWAY) -> RequestReceived:
        return worlds.received(request, model, self.now_s, source)

    def dispatched(self, request: str, model: ModelId, *, cold: bool) -> RequestDispatched:
        return worlds.dispatched(request, model, self.now_s, cold=cold)

    async def answers(self) -> list[LoadAnswer]:
        """What gateways were answered since the last look."""
        return [m for m in await self._heard() if isinstance(m, LoadAnswer)]

    async def tables(self) -> list[RoutingTable]:
        return [m for m in await self._heard() if isinstance(m, RoutingTable)]

    async def _heard(self) -> tuple[ToGateways, ...]:
        self._places["gateways"], found = await self.to_gateways.receive(
            self._places["gateways"], block_s=0.0
        )
        return found

    async def happened(self) -> list[AnyEvent]:
        """Events since the last look."""
        entries = await self.events.read_after(self._places["events"], count=100_000)
        if entries:
            self._places["events"] = entries[-1].entry_id
        return [entry.value for entry in entries]

    async def decisions(self) -> list[Decision]:
        """Decisions since the last look."""
        entries = await self.journal.after(self._places["journal"], block_s=0.0)
        if entries:
            self._places["journal"] = entries[-1].entry_id
        return [entry.value for entry in entries]

    async def world(self) -> WorldSnapshot:
        """The world as it is published next."""
        await self.clock.advance(1.01)
        found = await self.snapshots.world()
        assert found is not None
        return found

    def calls(self) -> list[tuple[float, str, ModelId]]:
        """What LocalAI did, seconds since the start."""
        return [(call.at_s - START_S, call.what, call.model) for call in self.server.calls]


__all__ = ["GATEWAY", "LEASE_S", "NODE", "START_S", "A", "B", "C", "Mode", "Stage"]
