"""A gateway that is told to stop: nothing is lost, and nobody is left without an answer."""

from __future__ import annotations

import asyncio
from collections import Counter

import aiohttp
import pytest

from contracts.events import RequestCompleted, RequestFailed, RequestReceived

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def test_who_waits_is_told_at_once_and_what_runs_goes_on(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold), kit.route("hot", kit.hot)))
    go_on = asyncio.Event()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(kit.chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    kit.localai.script = script
    url = gateway.url + CHAT
    running = await session.post(url, json={"model": "hot", "stream": True})
    assert await running.content.readany() == b"data: 1\n\n"
    waiting = asyncio.create_task(session.post(url, json={"model": "cold"}))
    await kit.eventually(gateway.service.waiting)
    gateway.service.leave()
    answer = await waiting
    assert answer.status == 503
    assert (await answer.json())["error"]["type"] == "shutting_down"
    assert answer.headers["Retry-After"] == "1"
    assert answer.headers["X-Headstart-Decision"] == "shutting_down"
    async with session.post(url, json={"model": "cold"}) as late:
        assert late.status == 503, "who would have to wait is told so, too"
    go_on.set()
    assert await running.read() == b"data: 2\n\n"
    (failed, late_one) = [one for one in await gateway.told() if isinstance(one, RequestFailed)]
    assert failed.error == late_one.error == "shutting_down"


async def test_a_stream_that_waits_with_comments_is_told_in_the_stream(kit, session):
    gateway = await kit.start(keepalive_s=0.5)
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    asked = asyncio.create_task(
        session.post(gateway.url + CHAT, json={"model": "cold", "stream": True})
    )
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(0.6)
    answer = await asked
    assert answer.status == 200
    gateway.service.leave()
    said = await answer.read()
    assert b"shutting_down" in said
    assert said.endswith(b"data: [DONE]\n\n")


async def test_an_idle_connection_is_closed_at_once(kit):
    gateway = await kit.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"GET /headstart/healthz HTTP/1.1\r\nhost: h\r\n\r\n")
    assert (await reader.readuntil(b"}")).startswith(b"HTTP/1.1 200")
    silent_reader, silent_writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    gateway._uvicorn.stop()
    async with asyncio.timeout(1.0):
        assert await reader.read() == b""
        assert await silent_reader.read() == b""
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", gateway.port)
    for each in (writer, silent_writer):
        each.close()


async def test_a_second_time_it_ends_now(kit, session):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await asyncio.sleep(600)

    kit.localai.script = script
    answer = await session.post(gateway.url + CHAT, json={"model": "m", "stream": True})
    await answer.content.readany()
    gateway._uvicorn.stop(grace_real_s=600.0)
    await asyncio.sleep(0.3)
    assert not gateway._served.done()
    gateway.service.leave_now()
    gateway._uvicorn.stop()
    async with asyncio.timeout(2.0):
        await gateway._served
        await kit.localai.seen[0].left.wait()
    with pytest.raises(aiohttp.ClientPayloadError):
        await answer.read()


async def test_a_caller_that_takes_nothing_does_not_hold_the_end_up(kit):
    gateway = await kit.start()

    async def flood(seen, writer):
        writer.write(kit.event_stream_head)
        while True:
            writer.write(kit.chunk(b"data: " + b"x" * 60_000 + b"\n\n"))
            await writer.drain()

    kit.localai.script = flood
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    body = b'{"model":"m","stream":true}'
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%s"
        % (len(body), body)
    )
    await kit.eventually(lambda: kit.localai.seen)
    await asyncio.sleep(0.3)  # until all buffers are full
    gateway._uvicorn.stop(grace_real_s=600.0)
    await asyncio.sleep(0.2)
    gateway._uvicorn.stop()
    async with asyncio.timeout(3.0):
        await gateway._served
    writer.close()


async def test_under_load_each_request_has_an_answer_or_a_clear_refusal(kit):
    """A hundred callers with and without kept connections, while the gateway stops."""
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold), kit.route("hot", kit.hot)))
    pieces = [b"data: %d\n\n" % number for number in range(20)]

    async def script(seen, writer):
        if b'"stream": true' in seen.body:
            writer.write(kit.event_stream_head)
            for piece in pieces:
                writer.write(kit.chunk(piece))
                await writer.drain()
                await asyncio.sleep(0.01)
            writer.write(b"0\r\n\r\n")
        else:
            await asyncio.sleep(0.02)
            writer.write(kit.reply(b'{"ok": true}'))

    kit.localai.script = script
    outcomes: Counter[str] = Counter()
    # What is cut in the middle of an answer would be a ClientPayloadError.
    refused_at_the_door = (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError)

    async def caller(number: int) -> None:
        body = {"model": "cold" if number % 11 == 0 else "hot", "stream": number % 2 == 0}
        async with aiohttp.ClientSession() as own:
            while True:
                try:
                    async with own.post(gateway.url + CHAT, json=body) as answer:
                        said = await answer.read()
                except refused_at_the_door:
                    outcomes["refused"] += 1
                    return
                if answer.status == 503:
                    assert b"shutting_down" in said
                    assert answer.headers["Retry-After"]
                    outcomes["told"] += 1
                    return
                assert answer.status == 200
                whole = b"".join(pieces) if body["stream"] else b'{"ok": true}'
                assert said == whole
                outcomes["whole"] += 1

    callers = [asyncio.create_task(caller(number)) for number in range(100)]
    await kit.eventually(lambda: outcomes["whole"] > 200)
    gateway.service.leave()
    gateway._uvicorn.stop(grace_real_s=10.0)
    await asyncio.gather(*callers)
    async with asyncio.timeout(5.0):
        await gateway._served
    assert outcomes["told"] == 10, "those that waited for the cold model"
    assert outcomes["refused"] > 0
    told = await gateway.told()
    completed = [one for one in told if isinstance(one, RequestCompleted)]
    assert len(completed) == outcomes["whole"]
    received = [one for one in told if isinstance(one, RequestReceived)]
    assert len(received) == outcomes["whole"] + outcomes["told"], "what was refused never began"
