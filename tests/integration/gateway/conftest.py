"""A gateway on a real socket in front of a scripted LocalAI, on a clock that tests move."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace

import pytest

from adapters.upstreams import open_upstream
from api.gateway.connections import Connections, EdgeLimits
from api.gateway.server import GatewayServer, bind
from api.gateway.service import GatewayPorts, GatewayService
from contracts.config import GatewayConfig, NodeConfig
from contracts.events import (
    AnyEvent,
    RequestCancelled,
    RequestCompleted,
    RequestFailed,
    RequestReceived,
)
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import GatewayBeat, LoadWanted, ToController, ToGateways
from contracts.routing import ModelRoute, NodeRoute, RoutingTable
from contracts.world import Mode, Residency
from simulator.memory_load_lock import MemoryLoadLock
from simulator.memory_ports import (
    MemoryEventLog,
    MemoryMailbox,
    MemoryModelServer,
    MemorySnapshotStore,
    VirtualClock,
)
from tests.waiting import until

NODE = NodeId("localai")


@dataclass
class Seen:
    """One request as it reached the scripted LocalAI."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes = b""
    left: asyncio.Event = field(default_factory=asyncio.Event)

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key.lower() == name.lower()]

    def one(self, name: str) -> str | None:
        found = self.all(name)
        assert len(found) <= 1, f"{name} is doubled: {found}"
        return found[0] if found else None


Script = Callable[[Seen, asyncio.StreamWriter], Awaitable[None]]


def reply(
    body: bytes = b"{}",
    *,
    status: str = "200 OK",
    headers: tuple[str, ...] = ("Content-Type: application/json",),
) -> bytes:
    lines = [f"HTTP/1.1 {status}", *headers, f"Content-Length: {len(body)}"]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


EVENT_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)


class ScriptedLocalAI:
    """Answers as the test says, byte by byte, and notices when its caller leaves."""

    def __init__(self) -> None:
        self.seen: list[Seen] = []
        self.script: Script = self.answer_ok
        self.port = 0
        self.reads_bodies = True
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def answer_ok(self, seen: Seen, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(b'{"ok": true}'))

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            for writer in tuple(self._writers):
                writer.close()
            await self._server.wait_closed()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while (seen := await _read_request(reader, self.reads_bodies)) is not None:
                self.seen.append(seen)
                answering = asyncio.ensure_future(self.script(seen, writer))
                watching = asyncio.ensure_future(_wait_for_end(reader, seen, self.reads_bodies))
                await asyncio.wait({answering, watching}, return_when=asyncio.FIRST_COMPLETED)
                watching.cancel()
                if not answering.done():
                    answering.cancel()
                await asyncio.wait({answering, watching})
                if writer.is_closing() or seen.left.is_set():
                    return
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


async def _wait_for_end(reader: asyncio.StreamReader, seen: Seen, body_was_read: bool) -> None:
    if not body_was_read:
        await asyncio.Event().wait()
    # Nothing more of the request comes; only the end of the connection can.
    with contextlib.suppress(ConnectionError):
        assert await reader.read(1) == b""
    seen.left.set()


async def _read_request(reader: asyncio.StreamReader, with_body: bool) -> Seen | None:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = [
        (name, value.strip()) for name, _, value in (line.partition(":") for line in lines if line)
    ]
    seen = Seen(method, target, headers)
    if not with_body:
        return seen
    if seen.one("transfer-encoding") == "chunked":
        while size := int((await reader.readuntil(b"\r\n")).strip(), 16):
            seen.body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
    elif length := seen.one("content-length"):
        seen.body = await reader.readexactly(int(length))
    return seen


class Gateway:
    """A running gateway with in-memory ports, and what its controller would see."""

    def __init__(
        self,
        localai: ScriptedLocalAI,
        config: GatewayConfig,
        limits: EdgeLimits | None = None,
    ) -> None:
        self.limits = limits
        self.localai = localai
        self.clock = VirtualClock(start_s=1_000.0)
        self.events = MemoryEventLog(clock=self.clock)
        self.to_controller: MemoryMailbox[ToController] = MemoryMailbox(clock=self.clock)
        self.to_gateways: MemoryMailbox[ToGateways] = MemoryMailbox(clock=self.clock)
        self.snapshots = MemorySnapshotStore()
        self.lock = MemoryLoadLock(self.clock)
        self.server = MemoryModelServer(
            self.clock, {ModelId("cold"): 5.0, ModelId("other"): 5.0, ModelId("hot"): 1.0}
        )
        self.config = config
        self.port = 0
        self._served: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def places(self) -> Connections:
        return self._uvicorn.places

    async def start(self) -> None:
        config = replace(self.config, nodes=(self.node_config(),))
        self.service = GatewayService(
            GatewayId("gateway-1"),
            config,
            GatewayPorts(
                clock=self.clock,
                upstreams={NODE: open_upstream(self.localai.url)},
                servers={NODE: self.server},
                events=self.events,
                to_controller=self.to_controller,
                to_gateways=self.to_gateways,
                snapshots=self.snapshots,
                load_lock=self.lock,
            ),
        )
        await self.service.start()
        self._uvicorn = GatewayServer(self.service.app, grace_real_s=2.0, limits=self.limits)
        listening = bind(replace(config, host="127.0.0.1", port=0))
        self.port = listening.getsockname()[1]
        self._served = asyncio.create_task(self._uvicorn.serve(sockets=[listening]))
        await until(lambda: self._uvicorn.started)

    def node_config(self) -> NodeConfig:
        given = self.config.nodes[0] if self.config.nodes else NodeConfig(node=NODE, url="")
        return replace(given, url=self.localai.url)

    async def stop(self) -> None:
        assert self._served is not None
        self._uvicorn.stop()
        await self._served
        # Its last words go out as soon as they can; nothing waits for the clock.
        await self.service.stop()

    async def publish(self, table: RoutingTable) -> None:
        """The controller sends a table; returns once the gateway has it.

        What it calls resident is so: a gateway that loads alone looks at LocalAI itself.
        """
        hot = {route.model for route in table.models.values() if route.residency is Residency.HOT}
        self.server.resident.update(hot)
        await self.to_gateways.send(table)
        await until(lambda: self.service.room._book.table is table)

    async def sent(self) -> tuple[ToController, ...]:
        """All that the controller was sent so far."""
        _, messages = await self.to_controller.receive("0", block_s=0.0)
        return messages

    async def wanted(self) -> list[LoadWanted]:
        return [message for message in await self.sent() if isinstance(message, LoadWanted)]

    async def beats(self) -> list[GatewayBeat]:
        return [message for message in await self.sent() if isinstance(message, GatewayBeat)]

    async def told(self) -> list[AnyEvent]:
        """All events, once what is buffered was written."""
        await self.service.telemetry.close()
        return [entry.value for entry in await self.events.read_after("0", count=100_000)]

    async def advance(self, duration_s: float) -> None:
        """Let time pass in small steps, with the sockets' work done in between."""
        while duration_s > 0.0:
            step_s = min(0.5, duration_s)
            await self.clock.advance(step_s)
            await asyncio.sleep(0.002)
            duration_s -= step_s


def table(
    *models: ModelRoute,
    token: int = 1,
    made_at_s: float = 1_000.0,
    mode: Mode = Mode.ACTIVE,
    draining: dict[ModelId, str] | None = None,
    aliases: dict[str, ModelId] | None = None,
    free_bytes: int | None = None,
) -> RoutingTable:
    return RoutingTable(
        token=token,
        made_at_s=made_at_s,
        mode=mode,
        models={route.model: route for route in models},
        nodes={NODE: NodeRoute(node=NODE, alive=True, free_bytes=free_bytes)},
        draining=draining or {},
        aliases=aliases or {},
    )


def route(model: str, residency: Residency, **details: object) -> ModelRoute:
    plain = ModelRoute(model=ModelId(model), node=NODE, residency=residency)
    return replace(plain, **details)  # type: ignore[arg-type] # tests name what they set


@dataclass
class Kit:
    """What tests take from here, since they cannot import it."""

    localai: ScriptedLocalAI
    start: Callable[..., Awaitable[Gateway]]
    close_codes: list[int | None] = field(default_factory=list)
    reply = staticmethod(reply)
    chunk = staticmethod(chunk)
    table = staticmethod(table)
    route = staticmethod(route)
    eventually = staticmethod(until)
    event_stream_head = EVENT_STREAM_HEAD
    hot = Residency.HOT
    cold = Residency.COLD
    loading = Residency.LOADING
    failed = Residency.FAILED

    def answers_on_word(self) -> asyncio.Event:
        """LocalAI answers each request once this is set."""
        go_on = asyncio.Event()

        async def script(_seen: object, writer: asyncio.StreamWriter) -> None:
            await go_on.wait()
            writer.write(reply())

        self.localai.script = script
        return go_on


@pytest.fixture
async def kit() -> AsyncIterator[Kit]:
    """A scripted LocalAI, and gateways in front of it; every request must have one end."""
    localai = ScriptedLocalAI()
    await localai.start()
    gateways: list[Gateway] = []

    async def start(*, limits: EdgeLimits | None = None, **settings: object) -> Gateway:
        config = replace(GatewayConfig(), **settings)  # type: ignore[arg-type] # as above
        gateway = Gateway(localai, config, limits)
        await gateway.start()
        gateways.append(gateway)
        return gateway

    yield Kit(localai, start)
    for gateway in gateways:
        await gateway.stop()
        check_one_end(await gateway.told())
        assert not gateway.service.in_flight()
        assert not gateway.service.waiting()
    await localai.stop()


def check_one_end(events: list[AnyEvent]) -> None:
    ids = [event.event_id for event in events]
    assert len(ids) == len(set(ids))
    received = Counter(event.request_id for event in events if isinstance(event, RequestReceived))
    ended = Counter(
        event.request_id
        for event in events
        if isinstance(event, RequestCompleted | RequestFailed | RequestCancelled)
    )
    assert received == ended
    assert all(count == 1 for count in received.values())
