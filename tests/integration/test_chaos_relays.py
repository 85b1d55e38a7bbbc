"""Connections break in the way that a chaos run says they do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import cast

import pytest
import pytest_asyncio

from tests.chaos.relays import Relay

pytestmark = pytest.mark.integration

Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo(asyncio.Protocol):
    """Says again what it hears."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self.transport.write(data)


@asynccontextmanager
async def echoing() -> AsyncIterator[Relay]:
    """A relay to a server that says again what it hears."""
    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", 0)
    relay = Relay("echo", port=server.sockets[0].getsockname()[1])
    await relay.start()
    try:
        yield relay
    finally:
        await relay.stop()
        server.close()


OPEN: list[asyncio.StreamWriter] = []


async def call(relay: Relay) -> Pair:
    reader, writer = await asyncio.open_connection("127.0.0.1", relay.port)
    OPEN.append(writer)
    return reader, writer


@pytest_asyncio.fixture(autouse=True)
async def _closed() -> AsyncIterator[None]:
    yield
    for writer in OPEN:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()
    OPEN.clear()


async def said(pair: Pair, text: bytes) -> bytes:
    reader, writer = pair
    writer.write(text)
    return await reader.readexactly(len(text))


async def is_silent(pair: Pair) -> bool:
    pair[1].write(b"anybody?")
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await pair[0].read(1)
            return False
    return True


async def is_reset(pair: Pair) -> bool:
    with pytest.raises(ConnectionResetError):
        await pair[0].read(1)
    return True


async def test_it_passes_on_both_ways_and_each_end():
    async with echoing() as relay:
        pair = await call(relay)
        long = b"x" * 3_000_000
        assert await said(pair, long) == long
        pair[1].write_eof()
        assert await pair[0].read() == b""
        pair[1].close()


async def test_a_reset_is_one_and_the_next_connection_works():
    async with echoing() as relay:
        pair = await call(relay)
        assert await said(pair, b"hello") == b"hello"
        relay.reset()
        assert await is_reset(pair)
        assert await said(await call(relay), b"hello") == b"hello"
        assert relay.broken == 1


async def test_half_open_says_nothing_then_knows_nobody():
    async with echoing() as relay:
        old = await call(relay)
        assert await said(old, b"hello") == b"hello"
        relay.stall(new=True)
        new = await call(relay)
        assert await is_silent(old)
        assert await is_silent(new)
        relay.heal()
        assert await is_reset(old)
        assert await is_reset(new)
        assert await said(await call(relay), b"hello") == b"hello"


async def test_forgotten_connections_are_silent_and_new_ones_work():
    async with echoing() as relay:
        old = await call(relay)
        assert await said(old, b"hello") == b"hello"
        relay.stall(new=False)
        assert await is_silent(old)
        assert await said(await call(relay), b"hello") == b"hello"


async def test_a_link_that_refuses_resets_whoever_comes():
    async with echoing() as relay:
        old = await call(relay)
        relay.refuse()
        assert await is_reset(old)
        assert await is_reset(await call(relay))
        relay.heal()
        assert await said(await call(relay), b"hello") == b"hello"


async def test_what_comes_late_comes_in_order():
    async with echoing() as relay:
        pair = await call(relay)
        relay.lag_s = 0.05
        reader, writer = pair
        for number in range(20):
            writer.write(b"%02d" % number)
            await asyncio.sleep(0.002)
        relay.lag_s = 0.0
        writer.write(b"end")
        writer.write_eof()
        whole = b"".join(b"%02d" % number for number in range(20)) + b"end"
        assert await reader.read() == whole


async def test_nobody_behind_it_is_a_reset():
    relay = Relay("nowhere", port=1)
    await relay.start()
    assert await is_reset(await call(relay))
    await relay.stop()
