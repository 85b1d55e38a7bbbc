"""Callers leave: what they leave behind goes on for those who stay, and each has one end."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress

import aiohttp
import pytest

from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from cli.traffic import SERVICE_HEADER
from contracts.events import (
    AnyEvent,
    RequestCancelled,
    RequestCompleted,
    RequestFailed,
    RequestPhase,
    RequestReceived,
)
from tests.acceptance.deployment import Answer, Deployment, deployed, of_kind

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

ENDS = (RequestCompleted, RequestFailed, RequestCancelled)
SLOW = {"name": "slow", "footprint_mb": 100, "load_s": 20}


async def event_log(deployment: Deployment) -> list[AnyEvent]:
    """All that the gateway and the controller wrote so far."""
    client = connect(deployment.stack.redis_url)
    try:
        entries = await RedisEventLog(client).read_after("0", count=100_000)
    finally:
        await client.aclose()
    return [entry.value for entry in entries]


async def ends_of(deployment: Deployment, prefix: str, wanted: int) -> dict[str, list[AnyEvent]]:
    """The end events of requests whose id begins so, once there are as many as wanted."""
    found: dict[str, list[AnyEvent]] = {}

    async def there() -> bool:
        log = await event_log(deployment)
        found.clear()
        for event in log:
            if isinstance(event, RequestReceived) and event.request_id.startswith(prefix):
                found.setdefault(event.request_id, [])
        for event in log:
            if isinstance(event, ENDS) and event.request_id in found:
                found[event.request_id].append(event)
        return sum(map(len, found.values())) >= wanted

    await deployment.until(there, f"{wanted} requests {prefix}* have ended")
    return found


async def is_loading(deployment: Deployment, model: str) -> None:
    async def so() -> bool:
        log = await deployment.events()
        started = of_kind(log, "load_started", model)
        state = await deployment.state()
        # Past the start of its process, which takes LocalAI two seconds: it reads weights.
        return bool(started) and state["at_s"] - started[-1]["at_s"] > 4.0

    await deployment.until(so, f"the weights of {model} are being read")


async def leave(callers: list[asyncio.Task[Answer]]) -> None:
    for caller in callers:
        caller.cancel()
    for caller in callers:
        with suppress(asyncio.CancelledError):
            await caller


async def test_ten_wait_for_a_cold_model_nine_leave_and_the_tenth_is_served(
    office: Deployment,
):
    start = await office.mark()
    callers = [
        asyncio.create_task(office.chat("slow", request_id=f"ten-{number}")) for number in range(10)
    ]
    await is_loading(office, "slow")
    await leave(callers[:9])
    answer = await callers[9]
    assert answer.status == 200, answer.text
    assert answer.is_cold

    log = await office.events(start)
    assert len(of_kind(log, "load_started", "slow")) == 1
    assert not of_kind(log, "load_cancelled", "slow")
    assert [event["request_id"] for event in of_kind(log, "request_received", "slow")] == ["ten-9"]
    ends = await ends_of(office, "ten-", 10)
    assert {request_id: len(events) for request_id, events in ends.items()} == {
        f"ten-{number}": 1 for number in range(10)
    }
    kinds = Counter(type(events[0]).__name__ for events in ends.values())
    assert kinds == {"RequestCancelled": 9, "RequestCompleted": 1}
    phases = {
        events[0].phase for events in ends.values() if isinstance(events[0], RequestCancelled)
    }
    assert phases == {RequestPhase.LOADING}


async def test_all_who_wait_leave_and_the_load_goes_on(office: Deployment):
    start = await office.mark()
    callers = [asyncio.create_task(office.chat("slow-too")) for _ in range(3)]
    await is_loading(office, "slow-too")
    await leave(callers)

    async def resident() -> bool:
        known = (await office.model("slow-too")).get("residency")
        return (await office.residency("slow-too"), known) == ("hot", "hot")

    await office.until(resident, "the load has ended although nobody waited")
    log = await office.events(start)
    assert len(of_kind(log, "load_started", "slow-too")) == 1
    assert not of_kind(log, "load_cancelled", "slow-too")
    answer = await office.chat("slow-too")
    assert (answer.status, answer.is_cold) == (200, False)


async def test_the_same_against_localai_alone_kills_the_load():
    async with deployed([SLOW], services=()) as localai:
        callers = [
            asyncio.create_task(localai.chat("slow", request_id=f"ten-{number}", alone=True))
            for number in range(10)
        ]
        await is_loading(localai, "slow")
        await leave(callers[:9])
        await callers[9]
        log = await localai.events()
        assert of_kind(log, "load_cancelled", "slow")
        assert len(of_kind(log, "load_started", "slow")) >= 2


async def test_one_caller_that_leaves_localai_alone_closes_the_model_for_the_next():
    # Slower than elsewhere: the cool-down is ten seconds of this clock.
    environ = {"HEADSTART_TIME_SCALE": "2"}
    async with deployed([{**SLOW, "load_s": 8}], services=(), environ=environ) as localai:
        caller = asyncio.create_task(localai.chat("slow", alone=True))
        await is_loading(localai, "slow")
        await leave([caller])

        async def cancelled() -> bool:
            return bool(of_kind(await localai.events(), "load_cancelled", "slow"))

        await localai.until(cancelled, "LocalAI has noticed that its caller left")
        refused = await localai.chat("slow", alone=True)
        assert refused.status == 503
        assert int(refused.headers["Retry-After"]) >= 1


async def test_a_caller_that_leaves_in_the_middle_of_a_stream_ends_its_work(office: Deployment):
    assert (await office.chat("small-f")).status == 200
    start = await office.mark()
    url = office.stack.gateway_url + "/v1/chat/completions"
    body = {"model": "small-f", "stream": True, "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"X-Request-ID": "half-read", SERVICE_HEADER: "600"}
    async with aiohttp.ClientSession() as session:
        answer = await session.post(url, json=body, headers=headers)
        assert answer.status == 200
        await answer.content.readany()
        answer.close()

    async def noticed() -> bool:
        log = await office.events(start)
        return bool(of_kind(log, "caller_left", "small-f"))

    await office.until(noticed, "LocalAI was told that the caller is gone")
    ends = await ends_of(office, "half-read", 1)
    (event,) = ends["half-read"]
    assert isinstance(event, RequestCancelled)
    assert event.phase is RequestPhase.STREAMING

    async def free() -> bool:
        return bool((await office.state())["models"]["small-f"]["in_flight"] == 0)

    await office.until(free, "its slot is free again")
