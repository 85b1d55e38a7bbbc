"""Both ways to LocalAI's data path keep the same promises: one suite on a scripted server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from adapters.upstream_aiohttp import AiohttpUpstream
from adapters.upstream_httptools import HttptoolsUpstream
from contracts.errors import Invalid
from contracts.upstream import Broken, OutgoingRequest, Unanswered, Unreachable, Upstream
from tests.waiting import until

pytestmark = pytest.mark.integration

LIMIT_S = 10.0
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Peer:
    """A server that does what the test says with each connection."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.gone = 0
        self.script: Callable[[Wire], Awaitable[None]] = answer_all
        self.base = ""
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self, context: ssl.SSLContext | None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        port = self._server.sockets[0].getsockname()[1]
        self.base = f"{'https' if context else 'http'}://127.0.0.1:{port}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in tuple(self._writers):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            await self.script(Wire(self, reader, writer))
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()
            self.gone += 1


class Wire:
    """One connection as the server has it."""

    def __init__(
        self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.peer, self.reader, self.writer = peer, reader, writer

    async def head(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        self.peer.heads.append(head)
        return head

    async def request(self) -> bytes:
        """A whole request; gives its body."""
        head = (await self.head()).lower()
        body = b""
        if b"transfer-encoding: chunked" in head:
            while size := int((await self.reader.readuntil(b"\r\n")).strip(), 16):
                body += (await self.reader.readexactly(size + 2))[:-2]
            await self.reader.readexactly(2)
        elif b"content-length:" in head:
            length = int(head.split(b"content-length:")[1].split(b"\r\n")[0])
            body = await self.reader.readexactly(length)
        self.peer.bodies.append(body)
        return body

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def until_gone(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self.reader.read(65536):
                pass


async def answer_all(wire: Wire) -> None:
    while True:
        await wire.request()
        await wire.say(OK)


def answering(data: bytes, *, closing: bool = False) -> Callable[[Wire], Awaitable[None]]:
    async def script(wire: Wire) -> None:
        while True:
            await wire.request()
            await wire.say(data)
            if closing:
                return

    return script


@pytest.fixture(scope="session")
def certificate(tmp_path_factory) -> Path:
    """A certificate for 127.0.0.1 with its key, signed by itself."""
    place: Path = tmp_path_factory.mktemp("tls") / "own.pem"
    command = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
        "-subj", "/CN=own", "-addext", "subjectAltName=IP:127.0.0.1",
        "-keyout", str(place), "-out", str(place) + ".crt",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)
    place.write_text(place.read_text() + Path(f"{place}.crt").read_text())
    return place


@pytest.fixture(params=["httptools", "aiohttp", "aiohttp over TLS"])
def kind(request) -> str:
    return str(request.param)


@pytest.fixture
async def peer(kind, request, monkeypatch) -> AsyncIterator[Peer]:
    context = None
    if kind.endswith("TLS"):
        place = request.getfixturevalue("certificate")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(place)
        monkeypatch.setenv("SSL_CERT_FILE", f"{place}.crt")
    peer = Peer()
    await peer.start(context)
    async with asyncio.timeout(LIMIT_S):
        yield peer
        await peer.stop()


@pytest.fixture
async def upstream(peer, kind) -> AsyncIterator[Upstream]:
    made = _made(kind, peer.base)
    yield made
    await made.close()
    await until(lambda: peer.gone == peer.connections)


def _made(kind: str, url: str) -> Upstream:
    if kind == "httptools":
        return HttptoolsUpstream(url, connect_timeout_s=2.0)
    return AiohttpUpstream(url, connect_timeout_s=2.0)


def get(method: str = "GET", *, headers: tuple[tuple[bytes, bytes], ...] = ()) -> OutgoingRequest:
    return OutgoingRequest(method=method, target=b"/x", headers=((b"host", b"h"), *headers))


def post(body: bytes | AsyncIterator[bytes], *, length: int | None = None) -> OutgoingRequest:
    framing = () if length is None else ((b"content-length", b"%d" % length),)
    return OutgoingRequest(
        method="POST", target=b"/x", headers=((b"host", b"h"), *framing), body=body
    )


async def pieces(*data: bytes) -> AsyncIterator[bytes]:
    for piece in data:
        yield piece


async def whole(response) -> bytes:
    read = await to_its_end(response)
    assert response.is_complete
    assert await response.read() == b""
    response.close()
    return read


async def to_its_end(response, read: list[bytes] | None = None) -> bytes:
    read = [] if read is None else read
    while piece := await response.read():
        read.append(piece)
    return b"".join(read)


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


async def test_a_get_is_repeated_when_its_kept_connection_was_closed(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        if peer.connections == 1:
            # It takes the next request, and closes without a word.
            await wire.request()
            return
        await answer_all(wire)

    peer.script = script
    assert await whole(await upstream.send(get())) == b"ok"
    assert await whole(await upstream.send(get())) == b"ok"
    assert peer.connections == 2


async def test_a_post_that_may_have_been_taken_is_not_repeated(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(OK)
        await wire.request()

    peer.script = script
    assert await whole(await upstream.send(post(b"1"))) == b"ok"
    with pytest.raises(Broken):
        await upstream.send(post(b"2"))
    assert peer.bodies == [b"1", b"2"]


async def test_nothing_is_repeated_on_a_fresh_connection(upstream, peer):
    async def script(wire: Wire) -> None:
        await wire.request()

    peer.script = script
    with pytest.raises(Broken):
        await upstream.send(get())
    assert len(peer.bodies) <= 2


async def test_kept_connections_that_were_closed_meanwhile(upstream, peer):
    peer.script = answering(OK, closing=True)
    for _ in range(3):
        # Its end is there before the next request, though no header announced it.
        assert await whole(await upstream.send(post(b"{}"))) == b"ok"
        await until(lambda: peer.gone == peer.connections)
        await asyncio.sleep(0.01)
    assert peer.bodies == [b"{}"] * 3


async def test_many_at_once(upstream, peer):
    async def one(number: int) -> bytes:
        return await whole(await upstream.send(post(b"%d" % number)))

    assert set(await asyncio.gather(*(one(number) for number in range(100)))) == {b"ok"}
    assert sorted(map(int, peer.bodies)) == list(range(100))


async def test_under_a_path_of_its_own(upstream, peer, kind):
    behind = _made(kind, peer.base + "/behind/")
    assert await whole(await behind.send(get())) == b"ok"
    assert peer.heads[0].startswith(b"GET /behind/x HTTP/1.1\r\n")
    tunnel = await behind.open_tunnel()
    assert tunnel.prefix == b"/behind"
    await tunnel.write(b"GET /t HTTP/1.1\r\n\r\n")
    assert await tunnel.read() == OK
    tunnel.close()
    await behind.close()


async def test_nobody_there(upstream, peer):
    await peer.stop()
    with pytest.raises(Unreachable, match="connection refused"):
        await upstream.send(get())
    with pytest.raises(Unreachable, match="connection refused"):
        await upstream.open_tunnel()


async def test_a_name_that_is_not_known(kind):
    scheme = "https" if kind.endswith("TLS") else "http"
    nowhere = _made(kind, f"{scheme}://localai.invalid:1")
    with pytest.raises(Unreachable, match="name could not be resolved"):
        await nowhere.send(get())
    with pytest.raises(Unreachable, match="name could not be resolved"):
        await nowhere.open_tunnel()
    await nowhere.close()


@pytest.mark.parametrize(
    "url", ["", "localai:8081", "ftp://x", "http://", "http://[", "http://a:b"]
)
def test_an_address_that_is_none(kind, url):
    with pytest.raises(Invalid):
        _made(kind, url)


async def test_a_host_that_takes_no_connection(kind):
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        # Its queue is full, so that the next connection is neither taken nor refused.
        held = [socket.socket() for _ in range(4)]
        for one in held:
            one.setblocking(False)
            one.connect_ex(full.getsockname())
        scheme = "https" if kind.endswith("TLS") else "http"
        made = _made(kind, f"{scheme}://127.0.0.1:{full.getsockname()[1]}")
        with pytest.raises(Unanswered):
            # The request's own limit goes before the client's, which the test would not wait for.
            await made.send(replace(get(), connect_timeout_s=0.1))
        await made.close()
        for one in held:
            one.close()


async def test_closing_ends_what_runs(peer, kind):
    async def script(wire: Wire) -> None:
        await wire.request()
        await wire.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await wire.until_gone()

    peer.script = script
    made = _made(kind, peer.base)
    response = await made.send(get())
    assert await response.read() == b"x"
    await made.close()
    with pytest.raises(Broken):
        await response.read()
    response.close()
    await until(lambda: peer.gone == peer.connections)
