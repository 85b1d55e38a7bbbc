"""A gateway and a controller over one emulated LocalAI in this process, on a fast clock."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

import aiohttp

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from adapters.localai_model_files import LocalAIModelFiles
from adapters.model_profiles import parse_scheduling_profile
from adapters.upstreams import open_upstream
from api.gateway.server import GatewayServer
from api.gateway.server import bind as bind_gateway
from api.gateway.service import GatewayPorts, GatewayService
from contracts.config import (
    ControllerConfig,
    GatewayConfig,
    ModelProfile,
    NodeConfig,
    PlannerConfig,
)
from contracts.errors import Transient
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import ToController, ToGateways
from contracts.routing import RoutingTable
from contracts.variants import Ladder, LadderOptions
from controller.loop import ControlLoop
from controller.ports import Ports
from emulator.models import parse_models
from emulator.options import MIB, EmulatorOptions
from emulator.server import bind, build, make_server, run
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

NODE = NodeId("localai")
PATIENCE_REAL_S = 20.0
_LOOK_REAL_S = 0.01


class FallbackStack:
    """``async with FallbackStack(models, capacity_mb=8000, ladders=…) as stack: … stack.url``.

    Parameters
    ----------
    models : iterable of mapping
        As in the emulator's file of models.
    ladders : iterable of Ladder
        What may answer for whom.
    gateway : mapping
        Fields of ``GatewayConfig``.
    """

    def __init__(
        self,
        models: Iterable[Mapping[str, Any]],
        *,
        capacity_mb: int,
        scale: float = 20.0,
        ladders: Iterable[Ladder] = (),
        options: LadderOptions | None = None,
        gateway: Mapping[str, Any] | None = None,
        orders: bool = True,
    ) -> None:
        self.clock = clock = ScaledClock(scale)
        given = EmulatorOptions(
            models=parse_models(list(models)), port=0, capacity_bytes=capacity_mb * MIB
        )
        self.emulator = build(given, clock)
        listener = bind("127.0.0.1", 0)
        self._emulating = make_server(self.emulator)
        self._thread = threading.Thread(
            target=run, args=(self.emulator, listener, self._emulating), daemon=True
        )
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        self._node = NodeConfig(node=NODE, url=url)
        self._gateway = dict(gateway or {})
        self._config = ControllerConfig(
            nodes=(self._node,),
            planner=PlannerConfig(policy="lru", prefetch=False, reserve_ratio=0.0),
            active_by_default=orders,
            poll_s=1.0,
            ladders={ladder.model: ladder for ladder in ladders},
            ladder_options=options or LadderOptions(),
        )
        self.url = ""

    @property
    def localai_url(self) -> str:
        """The emulator's own address."""
        return self._node.url

    async def __aenter__(self) -> FallbackStack:
        self._thread.start()
        await self.until(lambda: self._emulating.started)
        clock = self.clock
        to_controller: MemoryMailbox[ToController] = MemoryMailbox(clock=clock)
        to_gateways: MemoryMailbox[ToGateways] = MemoryMailbox(clock=clock)
        snapshots = MemorySnapshotStore()
        self.events = events = MemoryEventLog(clock=clock)
        self.journal = MemoryDecisionJournal(clock=clock)
        self.server = LocalAIServer(self._node, clock)
        self.files = LocalAIModelFiles(self._node, clock)
        config = GatewayConfig(host="127.0.0.1", port=0, nodes=(self._node,), **self._gateway)
        self.service = GatewayService(
            GatewayId("gateway-1"),
            config,
            GatewayPorts(
                clock=clock,
                upstreams={NODE: open_upstream(self._node.url)},
                servers={NODE: self.server},
                events=events,
                to_controller=to_controller,
                to_gateways=to_gateways,
                snapshots=snapshots,
                load_lock=MemoryLoadLock(clock),
            ),
        )
        listening = bind_gateway(config)
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._serving_server = GatewayServer(self.service.app, grace_real_s=1.0)
        await self.service.start()
        self._serving = asyncio.create_task(self._serving_server.serve(sockets=[listening]))
        await self.until(lambda: self._serving_server.started)
        self.session = aiohttp.ClientSession(self.url)
        loop = ControlLoop(
            "controller-1",
            Ports(
                clock=clock,
                events=events,
                to_controller=to_controller,
                to_gateways=to_gateways,
                forecasts=MemoryForecastStore(clock=clock),
                journal=self.journal,
                controls=MemoryControlStore(),
                snapshots=snapshots,
                lease=MemoryLease(),
                servers={NODE: self.server},
                declared=self._declared,
                model_files={NODE: self.files},
            ),
            self._config,
        )
        self._controlling = asyncio.create_task(loop.run())
        await self.until(lambda: self.table is not None and bool(self.table.models))
        return self

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        await self.session.close()
        self._serving_server.stop()
        await self._serving
        await self.service.stop()
        self._controlling.cancel()
        await asyncio.gather(self._controlling, return_exceptions=True)
        await self.files.close()
        await self.server.close()
        self._emulating.config.timeout_graceful_shutdown = 0
        self._emulating.should_exit = True
        await asyncio.to_thread(self._thread.join, PATIENCE_REAL_S)

    @property
    def table(self) -> RoutingTable | None:
        """What the gateway was told last."""
        return self.service.routing

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something that comes soon. Raises Transient when it does not."""
        left = int(PATIENCE_REAL_S / _LOOK_REAL_S)
        while not is_so():
            left -= 1
            if left <= 0:
                raise Transient("the stack did not come to what was waited for")
            await self.clock.sleep(_LOOK_REAL_S * self.clock.scale)

    async def hold_memory(self, size_mb: int) -> None:
        """Another program takes so much of the GPU's memory; 0: it gives it back."""
        url = f"{self._node.url}/emulator/faults"
        async with aiohttp.ClientSession() as session:
            if size_mb == 0:
                await session.delete(url)
            else:
                await session.post(url, json={"kind": "memory", "bytes": size_mb * MIB})

    async def _declared(self, _node: NodeId, model: ModelId) -> ModelProfile | None:
        text = await self.server.read_profile(model)
        return None if text is None else parse_scheduling_profile(text, source=model)
