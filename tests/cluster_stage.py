"""A gateway and a controller over several emulated LocalAIs: real sockets, a fast clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import aiohttp

from adapters.clock import ScaledClock
from adapters.localai_doors import LocalAIDoors
from adapters.localai_fleet import LocalAIFleet
from api.gateway.server import GatewayServer, bind
from api.gateway.service import GatewayPorts, GatewayService
from contracts.config import ControllerConfig, GatewayConfig, NodeConfig, PlannerConfig
from contracts.events import AnyEvent
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import ToController, ToGateways
from contracts.routing import RoutingTable
from contracts.world import Residency
from controller.loop import ControlLoop
from controller.ports import Ports
from controller.sight import Sight
from simulator.memory_load_lock import MemoryLoadLock
from simulator.memory_ports import (
    MemoryControlStore,
    MemoryDecisionJournal,
    MemoryEventLog,
    MemoryForecastStore,
    MemoryLease,
    MemoryMailbox,
    MemorySnapshotStore,
)
from tests.emulator_server import RunningEmulator
from tests.waiting import until


class Cluster:
    """``async with Cluster({"one": emulator, "two": emulator}) as cluster: …``.

    Parameters
    ----------
    emulators : mapping
        Running ones by node name; the first is the primary.
    accelerators : mapping
        Of nodes that are not ``cuda``.
    behind : str
        The name that all of them were found behind; then they come and go with ``addresses``.
    controller : bool
        Whether a controller runs; it orders (mode ``active``) unless ``observes``.
    """

    def __init__(
        self,
        emulators: Mapping[str, RunningEmulator],
        *,
        scale: float = 20.0,
        accelerators: Mapping[str, str] | None = None,
        behind: str = "",
        controller: bool = True,
        observes: bool = False,
        **gateway: Any,
    ) -> None:
        self.clock = ScaledClock(scale)
        first = next(iter(emulators))
        self.nodes = tuple(
            NodeConfig(
                node=NodeId(name),
                url=emulator.url,
                accelerator=(accelerators or {}).get(name, "cuda"),
                primary=name == first,
                behind=behind,
            )
            for name, emulator in emulators.items()
        )
        plain = GatewayConfig(host="127.0.0.1", port=0, nodes=self.nodes, expose_topology=True)
        self.config = replace(plain, **gateway)
        self.emulators = emulators
        self.addresses: tuple[str, ...] | None = tuple(_host(node.url) for node in self.nodes)
        self.events = MemoryEventLog(clock=self.clock)
        self.journal = MemoryDecisionJournal(clock=self.clock)
        self._has_controller = controller
        self._observes = observes
        self.url = ""

    async def __aenter__(self) -> Cluster:
        clock = self.clock
        self.to_controller = to_controller = MemoryMailbox[ToController](clock=clock)
        to_gateways: MemoryMailbox[ToGateways] = MemoryMailbox(clock=clock)
        snapshots = MemorySnapshotStore()
        self._doors = doors = LocalAIDoors(
            self.nodes,
            clock,
            lambda node: Sight(node.node, clock=clock, accelerator=node.accelerator),
            resolve=lambda _host, _port: self.addresses,
        )
        self._fleet = fleet = LocalAIFleet(self.config, clock)
        alone = not self._has_controller
        self.service = GatewayService(
            GatewayId("gateway-1"),
            self.config,
            GatewayPorts(
                clock=clock,
                upstreams=fleet.upstreams,
                servers=fleet.servers,
                doors=fleet,
                events=self.events,
                to_controller=None if alone else to_controller,
                to_gateways=None if alone else to_gateways,
                snapshots=None if alone else snapshots,
                load_lock=MemoryLoadLock(clock),
            ),
        )
        listening = bind(self.config)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._server = GatewayServer(self.service.app, grace_real_s=1.0)
        await self.service.start()
        self._serving = asyncio.create_task(self._server.serve(sockets=[listening]))
        await until(lambda: self._server.started)
        self.session = aiohttp.ClientSession(self.url)
        self._controlling: asyncio.Task[None] | None = None
        if self._has_controller:
            loop = ControlLoop(
                "controller-1",
                Ports(
                    clock=clock,
                    events=self.events,
                    to_controller=to_controller,
                    to_gateways=to_gateways,
                    forecasts=MemoryForecastStore(clock=clock),
                    journal=self.journal,
                    controls=MemoryControlStore(),
                    snapshots=snapshots,
                    lease=MemoryLease(),
                    servers=doors.servers,
                    sights=doors.sights,
                    doors=doors if doors.are_moving else None,
                ),
                ControllerConfig(
                    nodes=self.nodes,
                    planner=PlannerConfig(policy="lru", prefetch=False, reserve_ratio=0.0),
                    active_by_default=not self._observes,
                ),
            )
            self._controlling = asyncio.create_task(loop.run())
            nodes = {node.node for node in self.nodes}
            await until(
                lambda: (
                    self.service.room._book.table is not None
                    and {name for name, node in self.table.nodes.items() if node.alive} == nodes
                )
            )
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.session.close()
        self._server.stop()
        await self._serving
        await self.service.stop()
        if self._controlling is not None:
            self._controlling.cancel()
            await asyncio.gather(self._controlling, return_exceptions=True)
        await self._doors.aclose()
        await self._fleet.close()

    @property
    def table(self) -> RoutingTable:
        """What the gateway was told last."""
        table = self.service.room._book.table
        assert table is not None
        return table

    async def chat(self, model: str, **how: Any) -> Answer:
        """One chat request, read to its end."""
        headers = how.pop("headers", {})
        body = {"model": model, "messages": [{"role": "user", "content": "hello"}], **how}
        began_s = self.clock.monotonic_s()
        async with self.session.post(
            "/v1/chat/completions", json=body, headers=headers
        ) as response:
            return Answer(
                status=response.status,
                headers=response.headers,
                body=await response.read(),
                took_s=self.clock.monotonic_s() - began_s,
            )

    async def told(self) -> list[AnyEvent]:
        """All events so far."""
        while self.service.telemetry.pending:  # noqa: ASYNC110 - a flush or two
            await asyncio.sleep(0.002)
        entries = await self.events.read_after("0", count=1_000_000)
        return [entry.value for entry in entries]

    async def until_resident(self, model: str, *nodes: str) -> None:
        """Until the gateway was told that the model is resident on all of these."""

        def is_known() -> bool:
            route = self.table.models.get(ModelId(model))
            if route is None:
                return False
            places = route.places or {route.node: route.residency}
            return all(places.get(NodeId(node)) is Residency.HOT for node in nodes)

        await until(is_known)

    async def until_home(self, model: str, node: str) -> None:
        """Until the gateway was told that this node is the model's home."""

        def is_home() -> bool:
            route = self.table.models.get(ModelId(model))
            return route is not None and route.node == node

        await until(is_home)


def _host(url: str) -> str:
    return urlsplit(url).hostname or ""


class Answer:
    """What a caller got."""

    def __init__(self, *, status: int, headers: Any, body: bytes, took_s: float) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.took_s = took_s

    @property
    def backend(self) -> str:
        """The node that served it."""
        return str(self.headers["X-Headstart-Backend"])


def model(name: str, **details: Any) -> dict[str, Any]:
    """One model of an emulator: small, loaded in 4 s, quick to answer."""
    return {"name": name, "load_s": 4, "footprint_mb": 100, "ttft_s": 0.1, **details}


async def together(calls: Sequence[Awaitable[Answer]]) -> list[Answer]:
    """All at once."""
    return list(await asyncio.gather(*calls))
