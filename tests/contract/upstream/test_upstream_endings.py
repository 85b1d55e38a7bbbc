"""How a call to LocalAI ends before its time: broken answers, no HTTP, and who lets go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from contracts.upstream import Broken
from tests.contract.upstream.scripted_peer import OK, Wire, answering, get, post, to_its_end, whole
from tests.waiting import until

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("version", [b"HTTP/1.1", b"HTTP/1.0"])
async def test_a_body_that_ends_with_its_connection(upstream, peer, version):
    peer.script = answering(version + b" 200 OK\r\nX: y\r\n\r\nall of it", closing=True)
    for _ in range(2):
        assert await whole(await upstream.send(get())) == b"all of it"
    assert peer.connections == 2


async def test_a_connection_that_is_not_to_be_kept(upstream, peer):
    peer.script = answering(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    for _ in range(2):
        assert await whole(await upstream.send(get())) == b"ok"
    assert peer.connections == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n8\r\nab",
    ],
)
async def test_an_answer_that_breaks_off(upstream, peer, answer):
    peer.script = answering(answer, closing=True)
    response = await upstream.send(get())
    read: list[bytes] = []
    with pytest.raises(Broken, match="in the middle of the answer"):
        await to_its_end(response, read)
    assert b"".join(read) in (b"half", b"halfab")
    response.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"hello\r\n\r\n",
        b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 two OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nbad header: 1\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 200_000 + b"\r\n\r\n",
        b"",
        b"HTTP/1.1 200 OK\r\nX: y",
    ],
)
async def test_what_is_no_http(upstream, peer, answer):
    peer.script = answering(answer, closing=True)
    with pytest.raises(Broken) as raised:
        await upstream.send(post(b"{}"))
    assert "127.0.0.1" not in str(raised.value)


async def test_a_head_that_never_ends(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            await wire.say(b"y" * 4096)

    peer.script = script
    with pytest.raises(Broken):
        await upstream.send(get())


async def test_a_body_whose_source_fails(upstream, peer):
    class SourceError(Exception):
        pass

    async def source() -> AsyncIterator[bytes]:
        yield b"first"
        raise SourceError

    async def script(wire: Wire) -> None:
        await wire.head()
        await wire.until_gone()

    peer.script = script
    with pytest.raises(Broken):
        await upstream.send(post(source()))
    await until(lambda: peer.gone == peer.connections)


async def test_a_cancelled_call_ends_the_work_behind(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.until_gone()

    peer.script = script
    sending = asyncio.ensure_future(upstream.send(post(b"{}")))
    await until(lambda: peer.bodies)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    await until(lambda: peer.gone == 1)


async def test_letting_go_of_an_answer_ends_the_work_behind(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await wire.until_gone()

    peer.script = script
    response = await upstream.send(get())
    assert await response.read() == b"x"
    response.close()
    await until(lambda: peer.gone == 1)


async def test_letting_go_before_reading_what_has_come(upstream, peer):
    response = await upstream.send(get())
    response.close()
    assert await whole(await upstream.send(get())) == b"ok"


async def test_a_reader_that_gives_up_waiting(upstream, peer):
    """A read may be cancelled and tried again; nothing is lost."""
    going_on = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        await going_on.wait()
        await wire.say(b"cd")
        await wire.until_gone()

    peer.script = script
    response = await upstream.send(get())
    assert await response.read() == b"ab"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await response.read()
    going_on.set()
    assert await whole(response) == b"cd"
