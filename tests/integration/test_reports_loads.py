"""Field reports on loads, unloads and warm-ups, replayed with everything in place."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import aiohttp
import pytest

from contracts.events import (
    ActionApplied,
    ActionFailed,
    ModelLoaded,
    ModelUnloaded,
    UnloadCause,
)
from contracts.ids import ModelId
from contracts.messages import LoadRequested, UnloadRequested
from contracts.node_facts import Access, Call
from contracts.plan import Outcome
from contracts.reasons import Reason
from contracts.world import Residency
from tests.house import Answer, RunningHouse

pytestmark = pytest.mark.integration

A, B, C = ModelId("a"), ModelId("b"), ModelId("c")
MIB = 1024**2


def model(name: str, load_s: float = 4.0, **details: Any) -> dict[str, Any]:
    return {"name": name, "load_s": load_s, "footprint_mb": 100, **details}


@contextmanager
def house(*models: dict[str, Any], capacity_mb: int = 1000, **how: Any) -> Iterator[RunningHouse]:
    with RunningHouse(models, capacity_mb=capacity_mb, **how) as running:
        yield running


async def chat(house: RunningHouse, name: str, service_s: float = 1.0, **body: Any) -> Answer:
    async with aiohttp.ClientSession() as session:
        return await house.chat(session, name, service_s=service_s, **body)


def when(house: RunningHouse, kind: str, name: str) -> list[float]:
    return [event["at_s"] for event in house.emulator.events(kind, model=name)]


async def seen(house: RunningHouse, *kinds: type, count: int = 1) -> list[Any]:
    """Events of these kinds, once there are so many."""
    async with house.clock.timeout(300.0):
        while len(found := await asyncio.to_thread(house.told, *kinds)) < count:
            await house.clock.sleep(1.0)
    return found


IDLE = {"policy": "idle-timeout"}


@pytest.mark.case("P001")
async def test_a_model_with_a_stream_in_flight_is_not_idle():
    with house(model("a"), planner={**IDLE, "idle_timeout_s": 10.0}) as running:
        answer = await chat(running, "a", service_s=30.0, stream=True, max_tokens=12)
        assert answer.body.rstrip().endswith(b"data: [DONE]")
        await running.emulator.wait_for("unloaded", model="a")
        (ended,), (unloaded,) = (when(running, kind, "a") for kind in ("request_ended", "unloaded"))
        assert unloaded >= ended + 9.5  # idle counts from the end


@pytest.mark.case("P002")
async def test_who_asks_again_within_the_idle_time_meets_a_warm_model():
    with house(model("a"), planner={**IDLE, "idle_timeout_s": 30.0}) as running:
        await chat(running, "a", service_s=60.0, stream=True, max_tokens=12)
        await running.clock.sleep(10.0)
        again = await chat(running, "a")
        assert (again.status, again.headers["X-Headstart-Cold"]) == (200, "false")
        assert running.loads() == ["a"]


@pytest.mark.case("P003")
async def test_a_stop_that_never_ends_holds_up_nobody():
    with house(model("a"), model("b"), model("c")) as running:
        await asyncio.gather(chat(running, "a"), chat(running, "b"))
        running.emulator.arm({"kind": "unload_hang", "model": "a"})
        await running.gateway_sends(UnloadRequested(model=A, at_s=0.0))
        async with running.clock.timeout(30.0):
            while (await running.world()).models[A].residency is not Residency.DRAINING:
                pass
        warm, cold = await asyncio.gather(chat(running, "b"), chat(running, "c"))
        assert (warm.status, cold.status) == (200, 200)
        assert (warm.headers["X-Headstart-Cold"], running.loads()) == ("false", ["a", "b", "c"])
        async with (
            aiohttp.ClientSession(running.gateway.url) as session,
            session.get("/headstart/healthz") as health,
        ):
            assert health.status == 200
        (failed,) = await seen(running, ActionFailed)
        assert (failed.subject, failed.is_refused) == (A, True)
        stuck = (await running.world()).models[A]
        assert stuck.residency is Residency.HOT  # its memory is not given away
        assert "no answer" in stuck.unload_failure


@pytest.mark.case("P005")
async def test_a_stop_goes_by_the_name_of_the_configuration_and_404_is_not_done():
    dream = model("dream", parameters={"model": "dream_8.safetensors"})
    with house(dream) as running:
        await chat(running, "dream")
        running.emulator.arm({"kind": "unload_404", "model": "dream"})
        await running.gateway_sends(UnloadRequested(model=ModelId("dream"), at_s=0.0))
        await running.clock.sleep(60.0)
        stops = running.emulator.emulator.call_times._times["POST", "/backend/shutdown"][0]
        assert 1 <= stops <= 3
        status = (await running.world()).models[ModelId("dream")]
        # Once more is being tried while we look, or is not.
        assert status.residency in (Residency.HOT, Residency.DRAINING)
        assert status.occupied_bytes > 0
        assert "nothing to stop" in status.unload_failure
        assert await asyncio.to_thread(running.told, ModelUnloaded) == []


@pytest.mark.case("P009")
async def test_a_model_that_serves_is_never_evicted():
    with house(model("a"), model("b"), capacity_mb=150) as running:
        stream = asyncio.create_task(chat(running, "a", service_s=8.0, stream=True, max_tokens=8))
        await running.emulator.wait_for("request_started", model="a")
        assert (await chat(running, "b")).status == 200
        assert (await stream).body.rstrip().endswith(b"data: [DONE]")
        steps = [
            (event["kind"], event["model"])
            for event in running.emulator.events("request_ended", "unloaded", "load_started")
        ]
        assert steps[1:4] == [("request_ended", "a"), ("unloaded", "a"), ("load_started", "b")]


@pytest.mark.case("P020")
async def test_an_unload_of_a_busy_model_is_held_and_seen_and_nobody_hangs():
    with house(model("a")) as running:
        stream = asyncio.create_task(chat(running, "a", service_s=60.0, stream=True, max_tokens=9))
        await running.emulator.wait_for("request_started")
        await running.gateway_sends(UnloadRequested(model=A, at_s=0.0))
        await running.clock.sleep(5.0)
        assert (await chat(running, "a")).took_s < 50.0  # it is served meanwhile
        world = await running.world()
        assert (A in world.operator_unloads, world.models[A].occupied_bytes) == (True, 100 * MIB)
        held = [
            (one.outcome, one.reason)
            for one in await asyncio.to_thread(running.decisions)
            if one.subject == A
        ]
        assert (Outcome.HOLD, Reason.IN_FLIGHT) in held
        assert (await stream).body.rstrip().endswith(b"data: [DONE]")
        (gone,) = await seen(running, ModelUnloaded)
        assert gone.cause is UnloadCause.OPERATOR
        assert when(running, "unloaded", "a")[0] >= max(when(running, "request_ended", "a"))


@pytest.mark.case("P036")
async def test_a_slow_stop_makes_the_next_load_wait_and_nothing_fails():
    with house(model("a"), model("b"), capacity_mb=150) as running:
        await chat(running, "a")
        running.emulator.arm({"kind": "unload_slow", "model": "a", "extra_s": 12.0})
        answer = await chat(running, "b")
        assert (answer.status, answer.took_s > 12.0) == (200, True)
        (stopped,), (begun,) = when(running, "unloaded", "a"), when(running, "load_started", "b")
        assert begun >= stopped


@pytest.mark.case("P038", "P041")
async def test_what_is_loaded_ahead_has_answered_something_before_anybody_asks():
    slow_at_first = model("a", first_touch_s=80.0)
    with house(slow_at_first) as running:
        async with aiohttp.ClientSession(running.gateway.url) as session:
            for _ in range(3):
                async with session.get("/v1/models") as listed:
                    assert listed.status == 200
        assert running.loads() == []  # a list warms nothing
        await running.gateway_sends(LoadRequested(model=A, at_s=0.0))
        (_, warmed) = await seen(running, ActionApplied, count=2)
        assert (warmed.kind, warmed.subject, warmed.took_s > 75.0) == ("warm_up", A, True)
        answer = await chat(running, "a")
        assert (answer.status, answer.took_s < 60.0) == (200, True)
        assert running.loads() == ["a"]


@pytest.mark.case("P040")
async def test_a_localai_without_a_call_to_load_is_warmed_by_a_request():
    with house(model("a"), model("b"), emulator={"version": (4, 5)}) as running:
        await running.gateway_sends(LoadRequested(model=A, at_s=0.0))
        (loaded,) = await seen(running, ModelLoaded)
        assert loaded.model == A
        # And so is one that somebody waits for; nothing is shut off.
        assert [(await chat(running, name)).status for name in "ab"] == [200, 200]
        assert running.loads() == ["a", "b"]
        facts = (await running.world()).nodes[loaded.node].facts
        assert facts is not None
        assert facts.capabilities.access(Call.LOAD) is Access.ABSENT


@pytest.mark.case("P042")
async def test_what_a_localai_was_to_load_at_its_start_is_cold_until_it_is_there():
    with house(model("a"), model("b")) as running:
        await chat(running, "a")
        running.emulator.arm({"kind": "restart", "for_s": 60})
        await running.emulator.wait_for("unloaded", model="a")
        refused = await chat(running, "a")
        assert refused.status in (502, 503)
        assert json.loads(refused.body)["error"]["type"] in ("upstream_error", "no_backend")
        async with running.clock.timeout(300.0):
            while not all(node.alive for node in (await running.world()).nodes.values()) or (
                (await running.world()).models[A].residency is Residency.HOT
            ):
                pass
        async with running.clock.timeout(300.0):
            while (await chat(running, "a")).status != 200:
                await running.clock.sleep(2.0)
        assert running.loads() == ["a", "a"]
        gone = await asyncio.to_thread(running.told, ModelUnloaded)
        assert [(event.model, event.cause) for event in gone] == [(A, UnloadCause.RESTART)]


class TestBehindOurBack:
    """LocalAI unloads by itself: it is noticed, told and made good."""

    async def told(self, running: RunningHouse, *, reason: Reason, count: int = 1) -> list[str]:
        gone = await seen(running, ModelUnloaded, count=count)
        assert {event.cause for event in gone} == {
            UnloadCause.RESTART if reason is Reason.LOCALAI_RESTARTED else UnloadCause.EXTERNAL
        }
        said = [d for d in await asyncio.to_thread(running.decisions) if d.reason is reason]
        assert len(said) == count
        return [str(dict(one.evidence).get("set_there", "")) for one in said]

    async def test_its_limit(self):
        with house(model("a")) as running:
            await chat(running, "a")
            await running.world()
            running.emulator.arm({"kind": "evict", "model": "a"})
            assert await self.told(running, reason=Reason.LOCALAI_UNLOADED) == [""]
            assert (await running.world()).models[A].residency is Residency.COLD
            again = await chat(running, "a")
            assert (again.status, again.headers["X-Headstart-Cold"]) == (200, "true")

    async def test_its_idle_watchdog(self):
        with house(model("a"), emulator={"watchdog_idle_s": 20.0}) as running:
            await chat(running, "a")
            told = await self.told(running, reason=Reason.LOCALAI_UNLOADED)
            assert told == ["watchdog_idle = 20s"]
            assert running.emulator.events("unloaded")[0]["cause"] == "idle"

    async def test_its_reclaimer(self):
        with house(model("a"), model("b"), emulator={"reclaim_over": 0.5}) as running:
            await chat(running, "a")
            await running.world()
            running.emulator.arm({"kind": "memory", "bytes": 600 * MIB})
            told = await self.told(running, reason=Reason.LOCALAI_UNLOADED)
            assert told == ["memory_reclaimer = 0.5"]

    async def test_its_restart(self):
        with house(model("a"), model("b")) as running:
            await asyncio.gather(chat(running, "a"), chat(running, "b"))
            await running.clock.sleep(6.0)
            running.emulator.arm({"kind": "restart"})
            await self.told(running, reason=Reason.LOCALAI_RESTARTED, count=2)
            answers = await asyncio.gather(chat(running, "a"), chat(running, "b"))
            assert [answer.status for answer in answers] == [200, 200]
