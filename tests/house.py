"""A gateway and a controller before an emulated LocalAI, in one process, on a fast clock."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any

import aiohttp

from adapters.localai import LocalAIServer
from contracts.config import ControllerConfig, ModelProfile, PlannerConfig
from contracts.events import ModelLoadStarted, ModelUnloaded
from contracts.messages import ToController
from contracts.plan import Decision
from contracts.world import WorldSnapshot
from controller.loop import ControlLoop
from controller.ports import Ports
from simulator.memory_ports import (
    MemoryControlStore,
    MemoryDecisionJournal,
    MemoryForecastStore,
    MemoryLease,
    MemorySnapshotStore,
)
from tests.emulator_server import RunningEmulator
from tests.gateway_server import NODE, RunningGateway

SERVICE_HEADER = "X-Emulator-Service-S"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer, and how long it took in seconds of the house's clock."""

    status: int
    took_s: float
    queue_s: float | None
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class RunningHouse:
    """``with RunningHouse(models, capacity_mb=…) as house: house.run(work(house))``.

    ``planner`` and ``profiles`` are the controller's, ``settings`` the gateway's.
    """

    def __init__(
        self,
        models: Iterable[Mapping[str, Any]],
        *,
        capacity_mb: int | None = None,
        scale: float = 20.0,
        planner: Mapping[str, Any] | None = None,
        profiles: Iterable[ModelProfile] = (),
        emulator: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.emulator = RunningEmulator(
            models,
            scale=scale,
            capacity_mb=capacity_mb,
            exact_load_times=True,
            **(emulator or {}),
        )
        self._settings = settings
        self.config = ControllerConfig(
            planner=replace(
                PlannerConfig(policy="lru", reserve_ratio=0.0, prefetch=False), **(planner or {})
            ),
            profiles={profile.model: profile for profile in profiles},
            active_by_default=True,
            poll_s=2.0,
        )
        self.journal = MemoryDecisionJournal()
        self.controls = MemoryControlStore()
        self.snapshots = MemorySnapshotStore()

    def __enter__(self) -> RunningHouse:
        self.emulator.__enter__()
        self.gateway = RunningGateway(
            self.emulator.url, scale=self.emulator.scale, **self._settings
        )
        self.gateway.__enter__()
        self.clock = self.gateway.clock
        self.gateway.do(self._start_controller())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.gateway.do(self._stop_controller())
        self.gateway.__exit__(kind, error, trace)
        self.emulator.__exit__(kind, error, trace)

    async def chat(
        self,
        session: aiohttp.ClientSession,
        model: str,
        *,
        service_s: float = 1.0,
        headers: Mapping[str, str] | None = None,
        **body: Any,
    ) -> Answer:
        """One chat from its sending to its last byte."""
        since_s = self.clock.monotonic_s()
        sent = {SERVICE_HEADER: f"{service_s:.3f}", **(headers or {})}
        asked = {"model": model, "messages": [{"role": "user", "content": "Hello"}], **body}
        url = self.gateway.url + "/v1/chat/completions"
        async with session.post(url, json=asked, headers=sent) as answer:
            said = await answer.read()
            queue_ms = answer.headers.get("X-Headstart-Queue-Ms")
            return Answer(
                status=answer.status,
                took_s=self.clock.monotonic_s() - since_s,
                queue_s=None if queue_ms is None else int(queue_ms) / 1000,
                headers=answer.headers,
                body=said,
            )

    def loads(self) -> list[str]:
        """Models in the order in which LocalAI loaded them."""
        return [event["model"] for event in self.emulator.events("load_started")]

    def swaps(self) -> int:
        """Models that LocalAI stopped."""
        return len(self.emulator.events("unloaded"))

    def most_at_once(self, model: str) -> int:
        """The most requests of a model that LocalAI worked on at once."""
        running = most = 0
        for event in self.emulator.events(model=model):
            if event["kind"] == "request_started":
                running += 1
            elif event["kind"] in ("request_ended", "caller_left"):
                running -= 1
            most = max(most, running)
        return most

    async def gateway_sends(self, message: ToController) -> None:
        """What an operator wishes reaches the controller."""
        work = self.gateway.to_controller.send(message)
        await asyncio.to_thread(self.gateway.do, work)

    async def world(self) -> WorldSnapshot:
        """As the controller publishes it next."""
        await self.clock.sleep(1.5)
        found = await asyncio.to_thread(self.gateway.do, self.snapshots.world())
        assert found is not None
        return found

    def decisions(self) -> list[Decision]:
        """All that were recorded."""

        async def read() -> list[Decision]:
            entries = await self.journal.after("0", block_s=0.0)
            return [entry.value for entry in entries]

        return self.gateway.do(read())

    def told(self, *kinds: type) -> list[Any]:
        """Events of these kinds."""
        return [event for event in self.gateway.told() if isinstance(event, kinds)]

    def ordered(self) -> list[tuple[str, str]]:
        """What the controller had done, as ("load" or "unload", model)."""
        return [
            ("load" if isinstance(event, ModelLoadStarted) else "unload", event.model)
            for event in self.told(ModelLoadStarted, ModelUnloaded)
        ]

    async def _start_controller(self) -> None:
        gateway = self.gateway
        (node,) = gateway.config.nodes
        self._server = LocalAIServer(node, gateway.clock)
        self._loop = ControlLoop(
            "controller",
            Ports(
                clock=gateway.clock,
                events=gateway.events,
                to_controller=gateway.to_controller,
                to_gateways=gateway.to_gateways,
                forecasts=MemoryForecastStore(clock=gateway.clock),
                journal=self.journal,
                controls=self.controls,
                snapshots=self.snapshots,
                lease=MemoryLease(),
                servers={NODE: self._server},
            ),
            self.config,
        )
        self._running = asyncio.create_task(self._loop.run())
        while gateway.service.room._book.table is None or not (  # noqa: ASYNC110 - a few steps
            gateway.service.room._book.table.models
        ):
            await asyncio.sleep(0.005)

    async def _stop_controller(self) -> None:
        self._running.cancel()
        await asyncio.wait({self._running})
        await self._loop.release()
        await self._server.close()
