"""Requests and answers on both ways to LocalAI's data path: what is sent and comes, and when."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from contracts.upstream import Broken, OutgoingRequest
from tests.contract.upstream.scripted_peer import (
    OK,
    Wire,
    answer_all,
    answering,
    get,
    pieces,
    post,
    whole,
)
from tests.waiting import until

pytestmark = pytest.mark.integration


async def test_what_is_sent_is_what_was_given(upstream, peer):
    request = OutgoingRequest(
        method="GET",
        target=b"/x%2Fy?q=%20&z",
        headers=(
            (b"host", b"some.host:8080"),
            (b"x-Case", b"a  b\t"),
            (b"x-utf8", "ü".encode()),
            (b"x-latin", b"\xe9"),
            (b"accept-encoding", b"gzip"),
            (b"x-twice", b"1"),
            (b"x-twice", b"2"),
        ),
    )
    response = await upstream.send(request)
    assert response.status == 200
    assert await whole(response) == b"ok"
    first, *lines = peer.heads[0].split(b"\r\n")
    assert first == b"GET /x%2Fy?q=%20&z HTTP/1.1"
    sent = dict(line.split(b": ", 1) for line in lines if line)
    assert len([line for line in lines if line]) == 7
    assert sent[b"host"] == b"some.host:8080"
    assert sent[b"x-utf8"] == "ü".encode()
    assert sent[b"accept-encoding"] == b"gzip"
    assert [line for line in lines if line.startswith(b"x-twice")] == [
        b"x-twice: 1",
        b"x-twice: 2",
    ]


async def test_headers_of_an_answer_come_byte_for_byte(upstream, peer):
    peer.script = answering(
        b"HTTP/1.1 201 Whatever\r\nX-Case:  a  b \r\nset-cookie: 1\r\nSet-Cookie: 2\r\n"
        b"X-Odd: \xe9\xff\r\nX-Empty:\r\nContent-Length: 0\r\n\r\n"
    )
    response = await upstream.send(get())
    assert response.status == 201
    assert tuple(response.headers) == (
        (b"X-Case", b"a  b"),
        (b"set-cookie", b"1"),
        (b"Set-Cookie", b"2"),
        (b"X-Odd", b"\xe9\xff"),
        (b"X-Empty", b""),
        (b"Content-Length", b"0"),
    )
    assert await whole(response) == b""


async def test_connections_are_used_again(upstream, peer):
    for _ in range(5):
        assert await whole(await upstream.send(post(b"abc"))) == b"ok"
    assert await whole(await upstream.send(post(pieces(b"a", b"bc")))) == b"ok"
    assert peer.connections == 1
    assert peer.bodies == [b"abc"] * 6


@pytest.mark.parametrize(
    ("body", "length", "framing", "sent"),
    [
        (lambda: b"abc", None, b"content-length: 3", b"abc"),
        (lambda: b"", None, b"content-length: 0", b""),
        (lambda: pieces(b"ab", b"", b"c"), None, b"transfer-encoding: chunked", b"abc"),
        (lambda: pieces(b"ab", b"c"), 3, b"content-length: 3", b"abc"),
        (pieces, None, b"transfer-encoding: chunked", b""),
    ],
)
async def test_bodies_are_framed(upstream, peer, body, length, framing, sent):
    assert await whole(await upstream.send(post(body(), length=length))) == b"ok"
    assert framing in peer.heads[0].lower()
    assert peer.heads[0].lower().count(b"content-length") <= 1
    assert peer.bodies == [sent]


async def test_a_large_body_waits_for_its_reader(upstream, peer):
    given = bytearray()
    may_read = asyncio.Event()

    async def source() -> AsyncIterator[bytes]:
        for number in range(400):
            piece = bytes([number % 251]) * 65_536
            given.extend(piece)
            yield piece

    async def slow(wire: Wire) -> None:
        await wire.head()
        await may_read.wait()
        await wire.until_gone()

    peer.script = slow
    sending = asyncio.ensure_future(upstream.send(post(source())))
    await until(lambda: peer.heads)
    before = -1
    while before != len(given):
        before = len(given)
        await asyncio.sleep(0.05)
    assert len(given) < 400 * 65_536  # it was not all taken into memory
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending
    may_read.set()
    await until(lambda: peer.gone == 1)


async def test_a_large_body_arrives_whole(upstream, peer):
    data = bytes(range(256)) * 20_000
    assert await whole(await upstream.send(post(data))) == b"ok"
    cut = [data[start : start + 300_000] for start in range(0, len(data), 300_000)]
    assert await whole(await upstream.send(post(pieces(*cut)))) == b"ok"
    assert peer.bodies == [data, data]


async def test_a_large_answer_waits_for_its_reader(upstream, peer):
    total = 64 * 1024**2
    written = 0

    async def script(wire: Wire) -> None:
        nonlocal written
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total // 65_536):
            await wire.say(b"x" * 65_536)
            written += 65_536
        await wire.until_gone()

    peer.script = script
    response = await upstream.send(get())
    before = -1
    while before != written:
        before = written
        await asyncio.sleep(0.05)
    assert written < total
    assert len(await whole(response)) == total


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n",
        b"HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n",
    ],
)
async def test_interim_answers_are_left_out(upstream, peer, head):
    peer.script = answering(head + OK)
    for _ in range(2):
        response = await upstream.send(post(b"abc"))
        assert response.status == 200
        assert tuple(response.headers) == ((b"Content-Length", b"2"),)
        assert await whole(response) == b"ok"
    assert peer.connections == 1


@pytest.mark.parametrize(
    ("method", "status", "headers"),
    [
        ("HEAD", b"200 OK", b"Content-Length: 1000\r\n"),
        ("HEAD", b"404 Not Found", b"Content-Length: 7\r\n"),
        ("GET", b"204 No Content", b""),
        ("GET", b"304 Not Modified", b"Content-Length: 1000\r\n"),
        ("GET", b"304 Not Modified", b'Etag: "x"\r\n'),
    ],
)
async def test_answers_without_a_body(upstream, peer, method, status, headers):
    peer.script = answering(b"HTTP/1.1 " + status + b"\r\n" + headers + b"\r\n")
    for _ in range(3):
        response = await upstream.send(get(method))
        assert response.status == int(status[:3])
        assert await whole(response) == b""
    assert peer.connections == 1
    peer.script = answer_all


async def test_pieces_come_as_they_are_sent(upstream, peer):
    sent = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for word in (b"one", b"two", b"three"):
            await wire.say(b"%x;ext=1\r\n%b\r\n" % (len(word), word))
            await sent.wait()
            sent.clear()
        await wire.say(b"0\r\nX-Trailer: t\r\n\r\n")
        await answer_all(wire)

    peer.script = script
    response = await upstream.send(get())
    for word in (b"one", b"two", b"three"):
        assert await response.read() == word
        assert not response.is_complete
        sent.set()
    assert await response.read() == b""
    assert response.is_complete
    # A trailer is no header, and does not spoil the connection.
    assert [name for name, _ in response.headers] == [b"Transfer-Encoding"]
    assert await whole(await upstream.send(get())) == b"ok"
    assert peer.connections == 1


async def test_the_rest_is_all_that_was_not_read(upstream, peer, kind):
    may_end = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none")
        await may_end.wait()
        await wire.say(b"two")
        await answer_all(wire)

    peer.script = script
    response = await upstream.send(get())
    assert response.rest() is None
    assert await response.read() == b"one"
    assert response.rest() is None
    may_end.set()
    assert await whole(response) == b"two"
    again = await upstream.send(get())
    rest = again.rest()
    if kind == "httptools":
        assert (rest, again.is_complete) == (b"ok", True)
        assert again.rest() == b""
    assert (rest or b"") + await whole(again) == b"ok"
    assert peer.connections == 1


async def test_pieces_are_poured_as_they_are_sent(upstream, peer):
    sent = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for word in (b"one", b"two", b"three", b"four"):
            await wire.say(b"%x\r\n%b\r\n" % (len(word), word))
            await sent.wait()
            sent.clear()
        await wire.say(b"0\r\n\r\n")
        await answer_all(wire)

    taken: list[bytes] = []
    refused: list[bytes] = []

    def sink(data: bytes) -> bool:
        if data == b"three" and not refused:
            refused.append(data)
            return False
        sent.set()
        taken.append(data)
        return True

    peer.script = script
    response = await upstream.send(get())
    assert await response.read() == b"one"
    sent.set()
    while b"three" not in refused:
        await response.pour(sink)
    assert taken == [b"two"]
    assert not response.is_complete
    # What it did not take is read again.
    assert await response.read() == b"three"
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await response.pour(sink)
    sent.set()
    await response.pour(sink)
    assert taken == [b"two", b"four"]
    assert response.is_complete
    assert await whole(await upstream.send(get())) == b"ok"
    assert peer.connections == 1


async def test_what_a_sink_raises_is_raised(upstream, peer):
    class SinkError(Exception):
        pass

    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asyncio.sleep(0.02)
        await wire.say(b"3\r\none\r\n")
        await wire.until_gone()

    def sink(_data: bytes) -> bool:
        raise SinkError

    peer.script = script
    response = await upstream.send(get())
    with pytest.raises(SinkError):
        await response.pour(sink)
    response.close()
    await until(lambda: peer.gone == peer.connections)


async def test_a_stream_that_breaks_while_it_is_poured(upstream, peer):
    peer.script = answering(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", closing=True
    )
    response = await upstream.send(get())
    taken: list[bytes] = []

    def sink(data: bytes) -> bool:
        taken.append(data)
        return True

    with pytest.raises(Broken, match="in the middle of the answer"):
        await response.pour(sink)
    assert taken == [b"half"]
    response.close()


async def test_an_answer_while_the_body_is_still_sent(upstream, peer):
    going_on = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.head()
        await wire.say(
            b"HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\nConnection: close\r\n\r\nlarge"
        )
        await wire.until_gone()

    async def source() -> AsyncIterator[bytes]:
        yield b"x" * 1000
        await going_on.wait()
        yield b"y"

    peer.script = script
    response = await upstream.send(post(source()))
    assert response.status == 413
    assert await response.read() == b"large"
    going_on.set()
    response.close()


async def test_a_stream_both_ways(upstream, peer):
    """An answer may begin, and go on, while the request is still being sent."""
    said = asyncio.Event()

    async def script(wire: Wire) -> None:
        await wire.head()
        await wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n")
        rest = b""
        while not rest.endswith(b"0\r\n\r\n"):
            rest += await wire.reader.read(1000)
        assert b"second" in rest
        await wire.say(b"3\r\ntwo\r\n0\r\n\r\n")
        await answer_all(wire)

    async def source() -> AsyncIterator[bytes]:
        yield b"first"
        await said.wait()
        yield b"second"

    peer.script = script
    response = await upstream.send(post(source()))
    assert await response.read() == b"one"
    said.set()
    assert await whole(response) == b"two"
