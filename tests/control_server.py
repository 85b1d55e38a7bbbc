"""A control API over ports in memory, served by a real uvicorn in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

import aiohttp
from fastapi import FastAPI

from adapters.clock import ScaledClock
from api.control.app import create_app
from api.control.ports import ControlPorts
from api.control.room import ControlRoom
from api.control.server import ControlServer, bind
from contracts.config import ControlConfig, GatewayConfig, WorkersConfig
from contracts.errors import Invalid
from simulator.memory_batches import MemoryBatchStore, MemoryFileStore
from simulator.memory_insights import MemoryInsightStore
from simulator.memory_jobs import MemoryJobResults
from simulator.memory_predictors import MemoryPredictorRoster
from simulator.memory_profiles import MemoryProfileStore
from simulator.memory_scaling import MemoryScalingStore
from tests.browser.lively import KINDS, Kind, Lively
from workers.schedule import chores_of, next_runs

T = TypeVar("T")

LIMIT_S = 20.0


def _takes_https(url: str) -> None:
    if not url.startswith("https://"):
        raise Invalid("webhook: must begin with https://")


@dataclass
class RunningControl:
    """Started with ``start``; everything in it lives on the server's own loop."""

    config: ControlConfig = field(default_factory=ControlConfig)
    kinds: tuple[Kind, ...] = KINDS[:3]
    minutes: int = 5
    seeded: bool = True
    jobs: bool = True
    gateway: GatewayConfig | None = None
    port: int = 0
    _life: asyncio.Task[None] | None = None

    def start(self) -> RunningControl:
        ready = threading.Event()
        self._failure: BaseException | None = None

        def run() -> None:
            try:
                asyncio.run(self._serve(ready))
            except BaseException as error:  # noqa: BLE001 - told to the test that waits
                self._failure = error
                ready.set()

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        assert ready.wait(LIMIT_S)
        if self._failure is not None:
            raise self._failure
        return self

    def live(self) -> None:
        """Let time pass in the world, second by second, until the server stops."""

        async def begin() -> None:
            self._life = asyncio.create_task(self.lively.run())

        self.do(begin())

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(LIMIT_S)
        assert not self.thread.is_alive()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the server's loop and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(LIMIT_S)

    @property
    def room(self) -> ControlRoom:
        room: ControlRoom = self.app.state.room
        return room

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def got(self, path: str) -> tuple[int, Any]:
        """Status and JSON of an answer, over HTTP."""
        async with aiohttp.ClientSession() as session, session.get(self.url + path) as answer:
            return answer.status, await answer.json()

    async def refresh(self) -> None:
        """As the next poll would."""
        await self.room.followers.read_world()
        self.room.live.refresh()

    async def freshen(self) -> None:
        """As a controller that lives: the world is of now."""
        self.lively.world = replace(self.lively.world, taken_at_s=self.lively.clock.now_s())
        await self.lively.snapshots.put_world(self.lively.world)
        await self.refresh()

    async def _serve(self, ready: threading.Event) -> None:
        self.loop = asyncio.get_running_loop()
        clock = ScaledClock()
        self.lively = Lively(clock, kinds=self.kinds)
        past = await self.lively.seed(minutes=self.minutes) if self.seeded else ()
        self.files, self.batches = MemoryFileStore(), MemoryBatchStore()
        self.profiles = MemoryProfileStore()
        self.scaling, self.insights = MemoryScalingStore(), MemoryInsightStore()
        self.predictors = MemoryPredictorRoster()
        ports = replace(
            self.lively.ports(),
            files=self.files,
            batches=self.batches,
            results=MemoryJobResults(),
            profiles=self.profiles,
            scaling=self.scaling,
            insights=self.insights,
            predictors=self.predictors,
            chores=partial(next_runs, chores_of(WorkersConfig())),
            check_webhook=_takes_https,
        )
        if not self.jobs:
            ports = ControlPorts(
                events=ports.events,
                forecasts=ports.forecasts,
                decisions=ports.decisions,
                settings=ports.settings,
                snapshots=ports.snapshots,
                controller=ports.controller,
            )
        self.app: FastAPI = create_app(self.config, ports, clock, gateway=self.gateway)
        self.room.board.take_forecasts(past)
        listener = bind("127.0.0.1", self.port)
        self.port = listener.getsockname()[1]
        self.server = ControlServer(self.app, on_stop=self.room.feed.close)

        async def tell_when_started() -> None:
            while not self.server.started:  # noqa: ASYNC110 - uvicorn tells in no other way
                await asyncio.sleep(0.01)
            ready.set()

        telling = asyncio.create_task(tell_when_started())
        await self.server.serve(sockets=[listener])
        await telling
        if self._life is not None:
            self._life.cancel()
        listener.close()
