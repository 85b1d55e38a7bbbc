"""Configurations that change while requests wait and stream."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
import pytest

from api.gateway.keys import digest_of
from contracts.config import CallerKey, GatewayConfig, QueueConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


def reload(gateway, **changes: object) -> None:
    config = replace(GatewayConfig(), **changes)  # type: ignore[arg-type] # tests name what they set
    gateway.service.reload(config)


@pytest.mark.case("P086")
async def test_a_stream_goes_on_through_reloads_and_new_requests_see_the_new_one(kit, session):
    gateway = await kit.start(keys=("old",), between_bytes_timeout_s=30.0)
    go_on = asyncio.Event()
    pieces = [b"data: %d\n\n" % number for number in range(40)]

    async def script(seen, writer):
        writer.write(kit.event_stream_head)
        for number, piece in enumerate(pieces):
            if number == 10:
                await go_on.wait()
            writer.write(kit.chunk(piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    kit.localai.script = script
    url = gateway.url + CHAT
    answer = await session.post(
        url, json={"model": "m", "stream": True}, headers={"Authorization": "Bearer old"}
    )
    got = b""
    while len(got) < sum(map(len, pieces[:10])):
        got += await answer.content.readany()
    for number in range(20):
        reload(gateway, keys=(f"new-{number}",), max_body_bytes=100 + number)
    kit.localai.script = kit.localai.answer_ok
    for key, status in (("old", 401), ("new-18", 401), ("new-19", 200)):
        headers = {"Authorization": f"Bearer {key}"}
        async with session.post(url, json={"model": "m"}, headers=headers) as other:
            assert other.status == status
    go_on.set()
    assert got + await answer.read() == b"".join(pieces)


async def test_who_waits_keeps_what_it_came_in_with_and_the_next_gets_the_new_limits(kit, session):
    gateway = await kit.start(slots={ModelId("hot"): 1})
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    go_on = kit.answers_on_word()
    url = gateway.url + CHAT
    first = asyncio.create_task(session.post(url, json={"model": "hot"}))
    await kit.eventually(gateway.service.in_flight)
    patient = asyncio.create_task(session.post(url, json={"model": "hot"}))
    await kit.eventually(lambda: gateway.service.waiting() == {"hot": 1})
    short = QueueConfig(
        capacity=dict.fromkeys(PriorityClass, 2), timeout_s=dict.fromkeys(PriorityClass, 1.0)
    )
    reload(gateway, slots={ModelId("hot"): 1}, queue=short)
    hasty = asyncio.create_task(session.post(url, json={"model": "hot"}))
    await kit.eventually(lambda: gateway.service.waiting() == {"hot": 2})
    async with session.post(url, json={"model": "hot"}) as full:
        assert full.status == 429
    await gateway.advance(2.0)
    answer = await hasty
    assert answer.status == 503
    assert (await answer.json())["error"]["type"] == "queue_timeout"
    assert not patient.done(), "30 s were promised to it"
    go_on.set()
    assert (await first).status == (await patient).status == 200


async def test_more_slots_let_those_go_who_wait(kit, session):
    gateway = await kit.start(slots={ModelId("hot"): 1})
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    go_on = kit.answers_on_word()
    posts = [
        asyncio.create_task(session.post(gateway.url + CHAT, json={"model": "hot"}))
        for _ in range(3)
    ]
    await kit.eventually(lambda: gateway.service.waiting() == {"hot": 2})
    reload(gateway, slots={ModelId("hot"): 3})
    await kit.eventually(lambda: len(kit.localai.seen) == 3)
    go_on.set()
    assert [(await post).status for post in posts] == [200, 200, 200]


async def test_a_reload_refills_no_rate_and_where_it_listens_does_not_change(kit, session):
    caller = CallerKey(name="one", digest=digest_of(b"k"), requests_per_min=1.0)
    gateway = await kit.start(callers=(caller,))
    headers = {"Authorization": "Bearer k"}

    async def status() -> int:
        async with session.post(gateway.url + CHAT, json={"model": "m"}, headers=headers) as answer:
            return int(answer.status)

    assert [await status(), await status()] == [200, 429]
    reload(gateway, callers=(caller,), port=1, host="nowhere")
    assert await status() == 429
    reload(gateway, callers=(replace(caller, requests_per_min=None),))
    assert await status() == 200


async def test_every_request_among_many_reloads_sees_one_configuration(kit, session):
    """Key and body limit change together: a mixture of the two would be seen as 401 or 413."""
    gateway = await kit.start(keys=("a",), max_body_bytes=1_000)
    refused: list[int] = []
    stop = asyncio.Event()

    async def caller(key: str, size: int) -> None:
        while not stop.is_set():
            async with session.post(
                gateway.url + CHAT,
                data=b"x" * size,
                headers={"Authorization": f"Bearer {key}"},
            ) as answer:
                if answer.status != 200:
                    refused.append(answer.status)

    # With key a bodies may be small, with key b they may be large; a is never told 413.
    callers = [asyncio.create_task(caller("a", 900)) for _ in range(4)]
    for number in range(200):
        keys = (("a",), 1_000) if number % 2 else (("b",), 10)
        reload(gateway, keys=keys[0], max_body_bytes=keys[1])
        await asyncio.sleep(0.001)
    stop.set()
    await asyncio.gather(*callers)
    assert set(refused) <= {401}
    assert refused, "both were in force"
