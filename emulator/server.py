"""The emulator as a process: builds it from options and serves it until told to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import structlog
import uvicorn
import uvloop

from contracts.errors import Invalid
from contracts.ports import Clock
from emulator.admission import Admission
from emulator.app import EmulatorApp
from emulator.catalog import Catalog
from emulator.context import Emulator
from emulator.events import EventLog
from emulator.fault_script import FaultScript
from emulator.faults import FaultBoard
from emulator.instance import Instance
from emulator.options import EmulatorOptions
from emulator.watchdogs import Watchdogs
from emulator.websockets import SocketProtocol
from simulator.cluster import Cluster
from simulator.localai import LocalAi
from simulator.localai_state import LocalAiConfig

GRACE_S = 3
BACKLOG = 2048

log = structlog.get_logger(__name__)


def build(options: EmulatorOptions, clock: Clock) -> Emulator:
    """Everything but the network."""
    cluster: Cluster[int] = Cluster(
        (model.spec() for model in options.models), capacity_bytes=options.capacity_bytes
    )
    config = LocalAiConfig(model_limit=options.model_limit, watchdog_idle_s=options.watchdog_idle_s)
    machine = LocalAi(cluster, config.exact() if options.exact_load_times else config)
    for model in options.models:
        machine.set_pinned(model.name, pinned=model.pinned)
    events = EventLog(options.event_log)
    instance = Instance(machine, clock, events)
    board = FaultBoard(machine)
    return Emulator(
        options=options,
        clock=clock,
        catalog=Catalog(options.models),
        instance=instance,
        events=events,
        faults=board,
        script=FaultScript(board, instance, clock),
        admission=Admission(options.max_concurrent),
    )


def bind(host: str, port: int) -> socket.socket:
    """A listening socket; Invalid with one clear line when the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise Invalid(f"cannot listen on {host}:{port}: {error.strerror}") from error
    listener.listen(BACKLOG)
    listener.setblocking(False)  # noqa: FBT003 - the library's signature
    return listener


@asynccontextmanager
async def running(emulator: Emulator) -> AsyncIterator[None]:
    """The machine's own steps happen, and the faults of the options are armed."""
    options = emulator.options
    watchdogs = Watchdogs(
        emulator.instance,
        emulator.clock,
        busy_s=options.watchdog_busy_s,
        reclaim_over=options.reclaim_over,
    )
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(job()) for job in (emulator.instance.run, watchdogs.run)]
    try:
        for fault in emulator.options.faults:
            emulator.script.add(fault)
        yield
    finally:
        emulator.script.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        emulator.events.close()


def run(emulator: Emulator, listener: socket.socket, server: Server | None = None) -> None:
    """Serve on a loop of its own until SIGTERM, SIGINT or ``server.should_exit``."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(emulator, listener, server or make_server(emulator)))


class Server(uvicorn.Server):
    """The HTTP server, which leaves signals to ``serve`` so that they end in exit code 0."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


def make_server(emulator: Emulator) -> Server:
    """The HTTP server; for those who want to stop it themselves."""
    return Server(_config(emulator))


async def serve(emulator: Emulator, listener: socket.socket, server: Server) -> None:
    """Serve until SIGTERM, SIGINT or ``server.should_exit``."""
    host, port = listener.getsockname()[:2]
    log.info(
        "emulator.started",
        url=f"http://{host}:{port}",
        models=len(emulator.options.models),
        time_scale=emulator.clock.scale,
    )
    door = ListeningDoor(server, listener)
    emulator.script.door = door
    async with running(emulator):
        with _signals_stop(server):
            await server.serve(sockets=[listener])
        door.close()
        await asyncio.sleep(0)  # noqa: TID251 - one turn of the loop, no time
    log.info("emulator.stopped")


@contextmanager
def _signals_stop(server: Server) -> Iterator[None]:
    """SIGTERM and SIGINT let running answers end; a second one does not wait for them."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def stop() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class ListeningDoor:
    """The server's listening socket, which a fault may close for a while."""

    def __init__(self, server: Server, listener: socket.socket) -> None:
        self._server = server
        self._address = listener.getsockname()[:2]

    def close(self) -> None:
        """Refuse new connections and drop those that are open."""
        for listening in self._server.servers:
            listening.close()
        for connection in tuple(self._server.server_state.connections):
            if connection.transport is not None:
                connection.transport.close()  # what was written already still goes out

    def drop(self, client: tuple[str, int]) -> None:
        """Close this caller's connection without another byte."""
        for connection in tuple(self._server.server_state.connections):
            is_theirs = getattr(connection, "client", None) == client
            if is_theirs and connection.transport is not None:
                connection.transport.close()

    async def open(self) -> None:
        """Listen on the same address again."""
        listener = bind(*self._address)
        loop = asyncio.get_running_loop()
        listening = await loop.create_server(self._protocol, sock=listener, backlog=BACKLOG)
        self._server.servers = [listening]

    def _protocol(self) -> asyncio.Protocol:
        # What the server itself makes for each connection.
        config = self._server.config
        make: Any = config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=config,
            server_state=self._server.server_state,
            app_state=self._server.lifespan.state,
        )
        return protocol


def _config(emulator: Emulator) -> uvicorn.Config:
    # A hung-up connection is a fault that was asked for, not an error to report.
    logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
    return uvicorn.Config(
        EmulatorApp(emulator),
        ws=SocketProtocol,
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
        # A proxy in front must not hide whose connection a fault is to drop.
        proxy_headers=False,
        timeout_keep_alive=300,
        timeout_graceful_shutdown=GRACE_S,
        backlog=BACKLOG,
    )
