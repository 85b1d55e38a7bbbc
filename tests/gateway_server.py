"""A gateway on a real socket, run in a thread of its own, over ports in memory."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterable, Mapping
from concurrent.futures import Future
from dataclasses import replace
from types import TracebackType
from typing import Any, TypeVar

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from adapters.upstream_aiohttp import AiohttpUpstream
from api.gateway.server import GatewayServer, bind
from api.gateway.service import GatewayPorts, GatewayService
from contracts.config import GatewayConfig, NodeConfig
from contracts.events import AnyEvent
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import ToController, ToGateways
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.world import Mode, Residency
from simulator.memory_load_lock import MemoryLoadLock
from simulator.memory_ports import MemoryEventLog, MemoryMailbox, MemorySnapshotStore

NODE = NodeId("localai")
LIMIT_S = 20.0

T = TypeVar("T")


class RunningGateway:
    """``with RunningGateway(emulator.url) as gateway: … gateway.url``.

    No controller runs: what it would say is published by the test, and a load that a request
    wants is ordered by the gateway itself.
    """

    def __init__(self, localai_url: str, *, scale: float = 50.0, **settings: Any) -> None:
        node = settings.pop("node", NodeConfig(node=NODE, url=localai_url))
        plain = GatewayConfig(host="127.0.0.1", port=0, nodes=(replace(node, url=localai_url),))
        self.config = replace(plain, **settings)
        self.clock = ScaledClock(scale)
        self._listener = bind(self.config)
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._ready: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> RunningGateway:
        self._thread.start()
        self._ready.result(LIMIT_S)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._server.stop)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the gateway did not stop"

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the gateway's own loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)

    def publish(self, table: RoutingTable) -> None:
        """What a controller would do; returns once the gateway has the table."""

        async def send() -> None:
            await self.to_gateways.send(table)
            while self.service.room._book.table is not table:  # noqa: ASYNC110 - a few steps
                await asyncio.sleep(0.002)

        self.do(send())

    def routes(
        self,
        models: Mapping[str, Residency],
        *,
        aliases: Mapping[str, str] | None = None,
        token: int = 1,
    ) -> None:
        """Publish a table with these models, in active mode."""
        now_s = self.clock.now_s()
        self.publish(
            RoutingTable(
                token=token,
                made_at_s=now_s,
                mode=Mode.ACTIVE,
                models={
                    ModelId(name): ModelRoute(model=ModelId(name), node=NODE, residency=residency)
                    for name, residency in models.items()
                },
                nodes={NODE: NodeRoute(node=NODE, alive=True, free_bytes=None)},
                draining={},
                aliases={name: ModelId(target) for name, target in (aliases or {}).items()},
            )
        )

    def told(self) -> list[AnyEvent]:
        """All events so far."""

        async def read() -> list[AnyEvent]:
            while self.service.telemetry.pending:  # noqa: ASYNC110 - a flush or two
                await asyncio.sleep(0.002)
            entries = await self.events.read_after("0", count=1_000_000)
            return [entry.value for entry in entries]

        return self.do(read())

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    async def _serve(self) -> None:
        clock = self.clock
        self._loop = asyncio.get_running_loop()
        self.events = MemoryEventLog(clock=clock)
        self.to_controller: MemoryMailbox[ToController] = MemoryMailbox(clock=clock)
        self.to_gateways: MemoryMailbox[ToGateways] = MemoryMailbox(clock=clock)
        (node,) = self.config.nodes
        localai = LocalAIServer(node, clock)
        self.service = GatewayService(
            GatewayId("gateway-1"),
            self.config,
            GatewayPorts(
                clock=clock,
                upstreams={
                    node.node: AiohttpUpstream(
                        node.url, connect_timeout_s=self.config.connect_timeout_s
                    )
                },
                servers={node.node: localai},
                events=self.events,
                to_controller=self.to_controller,
                to_gateways=self.to_gateways,
                snapshots=MemorySnapshotStore(),
                load_lock=MemoryLoadLock(clock),
                control=(
                    None
                    if self.config.control_url is None
                    else AiohttpUpstream(self.config.control_url)
                ),
            ),
        )
        await self.service.start()
        self._server = GatewayServer(self.service.app, grace_real_s=1.0)
        serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))
        while not self._server.started and not serving.done():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.002)
        self._ready.set_result(None)
        try:
            await serving
        finally:
            await self.service.stop()
            await localai.close()


def of_kind(events: Iterable[AnyEvent], kind: type[T]) -> list[T]:
    """Those of one kind."""
    return [event for event in events if isinstance(event, kind)]
