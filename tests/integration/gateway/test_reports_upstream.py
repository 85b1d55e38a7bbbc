"""Field reports on connections to LocalAI: kept ones that were closed, and aborted streams."""

from __future__ import annotations

import asyncio
import contextlib

import aiohttp
import pytest

pytestmark = pytest.mark.integration

KEPT_S = 0.04
"""So long the server keeps an idle connection; requests come just as often."""


class ShortTempered:
    """A server that closes a connection on which nothing came for ``KEPT_S``."""

    def __init__(self) -> None:
        self.served: list[bytes] = []
        self.closed_idle = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                try:
                    async with asyncio.timeout(KEPT_S):
                        head = await reader.readuntil(b"\r\n\r\n")
                except TimeoutError:
                    self.closed_idle += 1
                    break
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                self.served.append(await reader.readexactly(length))
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
        writer.close()


@pytest.mark.case("P084")
async def test_a_server_that_closes_kept_connections_as_often_as_requests_come(kit):
    peer = ShortTempered()
    await kit.localai.stop()
    server = await asyncio.start_server(peer.serve, "127.0.0.1", kit.localai.port)
    gateway = await kit.start()
    async with aiohttp.ClientSession() as session:

        async def ask(number: int) -> None:
            body = {"model": "m", "number": number}
            async with session.post(gateway.url + "/v1/chat/completions", json=body) as answer:
                assert answer.status == 200, await answer.text()

        await ask(0)
        await kit.eventually(lambda: peer.closed_idle)
        for number in range(1, 61):
            await ask(number)
            await asyncio.sleep(KEPT_S)
    numbers = [int(body.split(b'"number": ')[1].rstrip(b"}")) for body in peer.served]
    assert numbers == list(range(61)), "each was executed exactly once"
    server.close()
    await server.wait_closed()
    await kit.localai.start()


@pytest.mark.case("P085")
async def test_aborted_streams_leave_nothing_behind(kit):
    release = asyncio.Event()

    async def script(seen, writer):
        if b'"short"' in seen.body:
            writer.write(kit.reply(b'{"ok": true}'))
            return
        writer.write(kit.event_stream_head)
        while not release.is_set():
            writer.write(kit.chunk(b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'))
            await writer.drain()
            await asyncio.sleep(0.02)
        writer.write(kit.chunk(b"data: [DONE]\n\n") + b"0\r\n\r\n")

    kit.localai.script = script
    gateway = await kit.start()
    url = gateway.url + "/v1/chat/completions"
    stream = {"model": "m", "stream": True}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:

        async def abort() -> None:
            async with session.post(url, json=stream) as answer:
                await answer.content.readany()
                answer.close()

        for _ in range(10):
            await asyncio.gather(*(abort() for _ in range(20)))
        await kit.eventually(lambda: not kit.localai._writers)
        assert not gateway.service.in_flight()

        slow = [await session.post(url, json=stream) for _ in range(150)]
        assert len(kit.localai._writers) == 150
        async with session.post(url, json={"model": "m", "kind": "short"}) as answer:
            assert await answer.json() == {"ok": True}
        assert all(not answer.content.at_eof() for answer in slow), "it did not wait for them"
        release.set()
        for answer in slow:
            assert (await answer.read()).endswith(b"data: [DONE]\n\n")
    assert len(kit.localai.seen) == 351
    await kit.eventually(lambda: not gateway.service.in_flight())
