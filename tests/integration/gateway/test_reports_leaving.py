"""Reports on callers that leave: LocalAI notices at once, in every state, or not, where told so."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from contracts.config import QueueConfig
from contracts.events import (
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestFailed,
    RequestPhase,
    RequestReceived,
)
from contracts.ids import ModelId
from tests.house import RunningHouse
from tests.waiting import until

pytestmark = pytest.mark.integration

A = ModelId("a")


def house(**settings: Any) -> RunningHouse:
    models = [
        {
            "name": "a",
            "load_s": 5.0,
            "parallel": 8,
            "first_token_s": 0.5,
            "tokens_per_s": 4.0,
            "answer_tokens": 200,
        }
    ]
    queue = QueueConfig(timeout_s=dict.fromkeys(PriorityClass, 600.0))
    return RunningHouse(models, queue=queue, **settings)


def ends(stage: RunningHouse) -> list[Any]:
    return stage.told(RequestCancelled, RequestCompleted, RequestFailed)


async def leave(asked: asyncio.Task[Any]) -> None:
    asked.cancel()
    await asyncio.wait({asked})


@pytest.mark.case("P055")
@pytest.mark.parametrize("stream", [False, True])
def test_a_caller_that_leaves_in_the_middle_ends_the_work(stream):
    async def work(stage: RunningHouse) -> None:
        async with aiohttp.ClientSession() as session:
            await stage.chat(session, "a", service_s=0.1)
            asked = asyncio.create_task(stage.chat(session, "a", service_s=60.0, stream=stream))
            await stage.emulator.wait_for("request_started", count=2, model="a")
            # Of a stream some tokens have come by now.
            await stage.clock.sleep(10.0)
            await leave(asked)
            await stage.emulator.wait_for("caller_left", model="a")
            await until(lambda: not stage.gateway.service.in_flight())

    with house(slots={"a": 1}) as stage:
        asyncio.run(work(stage))
        (cancelled,) = stage.told(RequestCancelled)
        assert cancelled.phase is (RequestPhase.STREAMING if stream else RequestPhase.DISPATCHED)
        assert bool(cancelled.output_tokens) is stream
        assert cancelled.reason == "left"
        assert len(ends(stage)) == len(stage.told(RequestReceived)) == 2


@pytest.mark.case("P056")
def test_a_caller_that_leaves_before_the_first_token_ends_the_work():
    async def work(stage: RunningHouse) -> None:
        async with aiohttp.ClientSession() as session:
            await stage.chat(session, "a", service_s=0.1)
            stage.emulator.arm({"kind": "answer_slow", "model": "a", "extra_s": 60.0})
            asked = asyncio.create_task(stage.chat(session, "a", stream=True, service_s=200.0))
            await stage.emulator.wait_for("request_started", count=2, model="a")
            await leave(asked)
            await stage.emulator.wait_for("caller_left", model="a")

    with house() as stage:
        asyncio.run(work(stage))
        (cancelled,) = stage.told(RequestCancelled)
        assert cancelled.phase is RequestPhase.DISPATCHED
        assert cancelled.output_tokens is None


@pytest.mark.case("P056")
def test_a_caller_that_leaves_the_queue_is_never_sent_on():
    async def work(stage: RunningHouse) -> None:
        async with aiohttp.ClientSession() as session:
            running = asyncio.create_task(stage.chat(session, "a", service_s=20.0))
            await stage.emulator.wait_for("request_started", model="a")
            queued = asyncio.create_task(stage.chat(session, "a", stream=True))
            await until(lambda: stage.gateway.service.waiting() == {A: 1})
            await leave(queued)
            await until(lambda: not stage.gateway.service.waiting())
            assert (await running).status == 200

    with house(slots={"a": 1}) as stage:
        asyncio.run(work(stage))
        (cancelled,) = stage.told(RequestCancelled)
        assert cancelled.phase is RequestPhase.QUEUED
        assert len(stage.emulator.events("request_received", model="a")) == 1


@pytest.mark.case("P056")
def test_a_load_goes_on_when_all_who_waited_for_it_have_left():
    async def work(stage: RunningHouse) -> None:
        async with aiohttp.ClientSession() as session:
            asked = asyncio.create_task(stage.chat(session, "a"))
            await stage.emulator.wait_for("load_started", model="a")
            await leave(asked)
            await stage.emulator.wait_for("load_ended", model="a")

    with house() as stage:
        asyncio.run(work(stage))
        (cancelled,) = stage.told(RequestCancelled)
        assert cancelled.phase is RequestPhase.LOADING
        assert not stage.emulator.events("load_cancelled", "request_received")


@pytest.mark.case("P058")
@pytest.mark.parametrize("stream", [False, True])
def test_where_the_backend_bears_no_cut_the_answer_is_read_to_its_end(stream):
    async def work(stage: RunningHouse) -> None:
        async with aiohttp.ClientSession() as session:
            await stage.chat(session, "a", service_s=0.1)
            asked = asyncio.create_task(stage.chat(session, "a", service_s=40.0, stream=stream))
            await stage.emulator.wait_for("request_started", count=2, model="a")
            await stage.clock.sleep(10.0)
            await leave(asked)
            await until(lambda: stage.told(RequestCancelled))
            assert stage.gateway.service.in_flight() == {A: 1}, "its slot stays taken"
            await stage.emulator.wait_for("request_ended", count=2, model="a")
            await until(lambda: not stage.gateway.service.in_flight())

    with house(drains_on_leave=frozenset({A})) as stage:
        asyncio.run(work(stage))
        assert not stage.emulator.events("caller_left")
        assert len(ends(stage)) == 2
