"""What LocalAI does to people, and what becomes of it with Headstart in front: one row each.

Each test shows the fault first, on an emulated LocalAI that is used directly, and then the same
callers on one with Headstart. The numbers are small; the clock runs twenty times as fast.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest

from adapters.clock import ScaledClock
from contracts.ids import ModelId
from contracts.messages import SettingsChanged, UnloadRequested
from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import NODE
from tests.house import SERVICE_HEADER, RunningHouse

pytestmark = pytest.mark.integration

SCALE = 20.0
CHAT = "/v1/chat/completions"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer: when its first and its last byte came, in seconds from the request."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes
    first_s: float
    took_s: float

    @property
    def error(self) -> Any:
        return json.loads(self.body)["error"]


class Callers:
    """People who use a server at this address."""

    def __init__(self, url: str, clock: ScaledClock) -> None:
        self.url = url
        self.clock = clock

    async def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> Said:
        began_s = self.clock.monotonic_s()
        async with (
            aiohttp.ClientSession(self.url) as http,
            http.request(method, path, json=body, headers=headers) as answer,
        ):
            first = await answer.content.readany()
            first_s = self.clock.monotonic_s() - began_s
            rest = await answer.content.read()
            return Said(
                status=answer.status,
                headers=answer.headers,
                body=first + rest,
                first_s=first_s,
                took_s=self.clock.monotonic_s() - began_s,
            )

    async def chat(
        self, model: str, *, service_s: float = 0.5, path: str = CHAT, **body: Any
    ) -> Said:
        asked = {"model": model, "messages": [{"role": "user", "content": "hi"}], **body}
        return await self.ask("POST", path, asked, {SERVICE_HEADER: str(service_s)})

    async def leave(self, model: str, after_s: float) -> None:
        """Ask, and go away before the answer."""
        asking = asyncio.create_task(self.chat(model))
        await self.clock.sleep(after_s)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


def model(name: str, load_s: float = 4.0, **details: Any) -> dict[str, Any]:
    return {"name": name, "load_s": load_s, "footprint_mb": 100, **details}


@contextmanager
def alone(*models: dict[str, Any], **options: Any) -> Iterator[tuple[Callers, RunningEmulator]]:
    """LocalAI as people use it without us."""
    with RunningEmulator(models, scale=SCALE, **options) as emulator:
        yield Callers(emulator.url, ScaledClock(SCALE)), emulator


@contextmanager
def helped(
    *models: dict[str, Any], capacity_mb: int | None = None, **how: Any
) -> Iterator[tuple[Callers, RunningHouse]]:
    """The same with a gateway and a controller in front."""
    with RunningHouse(models, capacity_mb=capacity_mb, scale=SCALE, **how) as house:
        yield Callers(house.gateway.url, house.clock), house


def posted(emulator: RunningEmulator, method: str, path: str) -> bool:
    """Whether this was ever called."""
    return (method, path) in emulator.emulator.call_times._times


class TestACallerThatLeavesDuringALoad:
    """Its load ends for everybody, and counts as a failure."""

    async def test_alone(self):
        with alone(model("a")) as (people, emulator):
            await people.leave("a", after_s=3.0)
            await emulator.wait_for("load_cancelled")
            said = await people.chat("a")
            assert (said.status, "cooldown" in said.error["message"]) == (503, True)

    async def test_with_headstart(self):
        with helped(model("a")) as (people, house):
            staying = asyncio.create_task(people.chat("a"))
            await people.leave("a", after_s=3.0)
            assert (await staying).status == 200
            assert (await people.chat("a")).status == 200
            assert house.loads() == ["a"]
            assert house.emulator.events("load_cancelled", "load_failed") == []


class TestAColdRequest:
    """No byte comes before the first token: clients and proxies give up."""

    async def test_alone(self):
        with alone(model("a", load_s=30.0)) as (people, _):
            said = await people.chat("a", stream=True)
            assert said.first_s > 30.0
            assert said.status == 200

    async def test_a_stream_with_headstart_hears_that_it_loads(self):
        with helped(model("a", load_s=30.0), keepalive_s=5.0) as (people, _):
            said = await people.chat("a", stream=True)
            assert said.first_s < 25.0 < said.took_s
            assert said.body.startswith(b": headstart loading")
            assert said.body.rstrip().endswith(b"data: [DONE]")

    async def test_any_other_with_headstart_is_told_the_rest_honestly(self):
        with helped(model("a", load_s=30.0)) as (people, house):
            headers = {"X-Headstart-Deadline-Ms": "10000"}
            said = await people.ask("POST", CHAT, {"model": "a", "messages": []}, headers)
            assert (said.status, said.error["type"]) == (503, "model_loading")
            assert 1 <= int(said.headers["Retry-After"]) <= 60
            assert json.loads(said.body)["loading"]["elapsed_s"] >= 5.0
            assert (await people.chat("a")).status == 200
            assert house.loads() == ["a"]


class TestAStopOfABusyModel:
    """While it waits for the last request, new ones of that model hang."""

    async def test_alone(self):
        with alone(model("a")) as (people, emulator):
            running = asyncio.create_task(people.chat("a", service_s=20.0))
            await emulator.wait_for("request_started")
            stopping = asyncio.create_task(people.ask("POST", "/backend/shutdown", {"model": "a"}))
            await people.clock.sleep(1.0)
            hanging = await people.chat("a")
            assert hanging.took_s > 12.0
            assert [(await task).status for task in (running, stopping)] == [200, 200]

    async def test_with_headstart(self):
        turns = {"turn_s": 600.0}
        with helped(
            model("a"), model("b"), capacity_mb=150, planner=turns, min_load_budget_s=600.0
        ) as (people, house):
            running = asyncio.create_task(people.chat("a", service_s=40.0))
            await house.emulator.wait_for("request_started")
            other = asyncio.create_task(people.chat("b"))
            await house.gateway_sends(UnloadRequested(model=ModelId("a"), at_s=0.0))
            await people.clock.sleep(1.0)
            assert (await people.chat("a")).took_s < 30.0
            assert [(await task).status for task in (running, other)] == [200, 200]
            # Nobody was in it when it was stopped.
            ends = [e["at_s"] for e in house.emulator.events("request_ended", model="a")]
            (stopped,) = house.emulator.events("unloaded", model="a")
            assert stopped["at_s"] >= max(ends)


class TestACoolDown:
    """It is a 503 on three paths only; a stream is told 200, other APIs 500."""

    PATHS: tuple[tuple[str, dict[str, Any]], ...] = (
        (CHAT, {"stream": True}),
        (CHAT, {}),
        ("/v1/messages", {"max_tokens": 5}),
    )

    async def test_alone(self):
        with alone(model("a")) as (people, emulator):
            emulator.arm({"kind": "cooldown", "model": "a", "for_s": 120})
            said = [await people.chat("a", path=path, **how) for path, how in self.PATHS]
            assert [one.status for one in said] == [200, 503, 500]
            assert b"error" in said[0].body
            assert ["Retry-After" in one.headers for one in said] == [False, True, False]

    async def test_with_headstart(self):
        with helped(model("a")) as (people, house):
            fault = {"kind": "load_fail", "model": "a", "times": 1, "message": "bad magic"}
            house.emulator.arm(fault)
            assert (await people.chat("a")).status == 503
            said = [await people.chat("a", path=path, **how) for path, how in self.PATHS]
            assert [one.status for one in said] == [503, 503, 503]
            assert all(1 <= int(one.headers["Retry-After"]) <= 10 for one in said)
            assert {one.error["type"] for one in said} == {"model_cooldown"}
            assert json.loads(said[2].body)["type"] == "error"  # as Anthropic says it
            assert all("bad magic" in one.error["message"] for one in said)
            await people.clock.sleep(12.0)
            assert (await people.chat("a")).status == 200


class TestADeadBackend:
    """Up to 30 s of "connection refused", and asked to load it LocalAI says that it is loaded."""

    async def test_alone(self):
        with alone(model("a")) as (people, emulator):
            assert (await people.chat("a")).status == 200
            emulator.arm({"kind": "backend_crash", "model": "a"})
            assert (await people.ask("POST", "/backend/load", {"model": "a"})).status == 200
            said = await people.chat("a")
            assert (said.status, "refused" in said.error["message"]) == (500, True)
            await people.clock.sleep(15.0)
            assert (await people.chat("a")).status == 500

    async def test_with_headstart(self):
        with helped(model("a")) as (people, house):
            assert (await people.chat("a")).status == 200
            house.emulator.arm({"kind": "backend_crash", "model": "a"})
            waiting = [people.chat("a"), people.chat("a", stream=True), people.chat("a")]
            said = await asyncio.gather(*waiting)
            assert [one.status for one in said] == [200, 200, 200]
            assert not any(b"refused" in one.body for one in said)
            assert max(one.took_s for one in said) < 25.0
            assert house.loads() == ["a", "a"]


class TestFullSlots:
    """They turn a cold model into one that failed to load."""

    MODELS = (model("a"), model("b"))

    async def test_alone(self):
        with alone(*self.MODELS, max_concurrent=2) as (people, emulator):
            await people.chat("a")
            running = [asyncio.create_task(people.chat("a", service_s=15.0)) for _ in range(2)]
            await emulator.wait_for("request_started", count=3)
            assert (await people.chat("b")).status == 503
            state = emulator.get("/emulator/state")["models"]["b"]
            assert state["cooldown_left_s"] > 0
            await asyncio.gather(*running)

    async def test_with_headstart(self):
        slots = {ModelId("a"): 1, ModelId("b"): 1}
        with helped(*self.MODELS, emulator={"max_concurrent": 2}, slots=slots) as (people, house):
            await people.chat("a")
            running = [asyncio.create_task(people.chat("a", service_s=10.0)) for _ in range(2)]
            await house.emulator.wait_for("request_started", count=2)
            assert (await people.chat("b")).status == 200
            assert {(await task).status for task in running} == {200}
            state = house.emulator.get("/emulator/state")["models"]["b"]
            assert state["cooldown_left_s"] == 0
            assert house.most_at_once("a") == 1


class TestALimit:
    """It counts models, waits for a busy one for half a minute, and then goes over itself."""

    MODELS = (model("a", load_s=1.0), model("b", load_s=1.0))

    async def test_alone(self):
        with alone(*self.MODELS, model_limit=1) as (people, emulator):
            running = asyncio.create_task(people.chat("a", service_s=60.0))
            await emulator.wait_for("request_started")
            said = await people.chat("b")
            assert said.took_s > 29.0
            loaded = (await people.ask("GET", "/system")).body
            assert len(json.loads(loaded)["loaded_models"]) == 2
            running.cancel()

    async def test_with_headstart(self):
        with helped(*self.MODELS, emulator={"model_limit": 1}) as (people, house):
            running = asyncio.create_task(people.chat("a", service_s=40.0))
            await house.emulator.wait_for("request_started")
            assert (await people.chat("b")).status == 200
            assert (await running).status == 200
            begun = [(event["kind"], event["model"]) for event in house.emulator.events(
                "load_started", "unloaded")]  # fmt: skip
            assert begun == [("load_started", "a"), ("unloaded", "a"), ("load_started", "b")]


class TestSettings:
    """Changing a limit in them can stop the server for good."""

    async def test_alone(self):
        with alone(model("a"), model_limit=2) as (people, _), pytest.raises(TimeoutError):
            async with people.clock.timeout(60.0):
                await people.ask("POST", "/api/settings", {"max_active_backends": 3})

    async def test_with_headstart(self):
        with helped(model("a"), model("b"), emulator={"model_limit": 1}) as (people, house):
            assert [(await people.chat(name)).status for name in "abab"] == [200] * 4
            assert not posted(house.emulator, "POST", "/api/settings")
            world = await house.world()
            facts = world.nodes[NODE].facts
            assert facts is not None
            warning = facts.warnings[0]
            assert warning.setting == "max_active_backends"
            assert "LOCALAI_MAX_ACTIVE_BACKENDS" in warning.remedy


class TestNamesThatAreNoModel:
    """With a slash in them they start every backend, and so does any name that is to be loaded."""

    async def test_alone(self):
        with alone(model("a")) as (people, emulator):
            assert (await people.chat("org/none")).status == 500
            assert len(emulator.events("load_started", model="org/none")) == 1
            said = await people.ask("POST", "/backend/load", {"model": "nonsense"})
            assert said.status == 500
            assert len(emulator.events("load_started", model="nonsense")) == 1

    async def test_with_headstart(self):
        with helped(model("a")) as (people, house):
            said = await people.chat("org/none")
            assert (said.status, said.error["type"]) == (404, "invalid_request_error")
            assert "org/none" in said.error["message"]
            assert (await people.chat("a")).status == 200
            assert house.loads() == ["a"]


class TestWhatItTellsOfItsModels:
    """No loading ones, but dead ones; and what another program holds is nobody's."""

    async def test_alone(self):
        with alone(model("a", load_s=40.0)) as (people, emulator):
            loading = asyncio.create_task(people.chat("a"))
            await emulator.wait_for("load_started")
            assert json.loads((await people.ask("GET", "/system")).body)["loaded_models"] == []
            await loading
            emulator.arm({"kind": "backend_crash", "model": "a"})
            loaded = json.loads((await people.ask("GET", "/system")).body)["loaded_models"]
            assert [one["id"] for one in loaded] == ["a"]

    async def test_with_headstart(self):
        with helped(model("a", load_s=40.0), capacity_mb=1000) as (people, house):
            loading = asyncio.create_task(people.chat("a"))
            await house.emulator.wait_for("load_started")
            assert (await house.world()).models[ModelId("a")].residency is Residency.LOADING
            await loading
            assert (await house.world()).models[ModelId("a")].residency is Residency.HOT
            house.emulator.arm({"kind": "memory", "bytes": 300 * 1024**2})
            house.emulator.arm({"kind": "backend_crash", "model": "a"})
            assert (await people.chat("a")).status == 200
            async with people.clock.timeout(100.0):
                while (await house.world()).nodes[NODE].used_by_others_bytes < 200 * 1024**2:
                    pass
            assert (await house.world()).models[ModelId("a")].residency is Residency.HOT


class TestAPatchOfItsConfiguration:
    """It unloads the model, whatever is changed."""

    PATH = "/api/models/config-json/a"

    async def test_alone(self):
        with alone(model("a")) as (people, emulator):
            await people.chat("a")
            assert (await people.ask("PATCH", self.PATH, {"pinned": True})).status == 200
            await emulator.wait_for("unloaded", model="a")

    async def test_with_headstart(self):
        with helped(model("a"), model("b"), capacity_mb=150) as (people, house):
            await people.chat("a")
            await house.controls.set_pin(ModelId("a"), pinned=True)
            await house.gateway_sends(SettingsChanged(at_s=0.0))
            await people.clock.sleep(3.0)
            assert (await house.world()).models[ModelId("a")].pinned
            assert house.emulator.events("unloaded") == []
            assert not posted(house.emulator, "PATCH", "/api/models/config-json/:name")
