"""Callers that mean harm, or speak badly: each is refused clearly, or passes with one meaning."""

from __future__ import annotations

import asyncio
import contextlib
import re
from dataclasses import replace
from pathlib import Path

import aiohttp
import msgspec
import pytest

from api.gateway.connections import EdgeLimits
from api.gateway.heads import HeadLimits

pytestmark = pytest.mark.integration

POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n"
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n"
UPGRADE = b"Connection: Upgrade\r\nUpgrade: websocket\r\n"


class RawLocalAI:
    """Keeps what reaches it byte by byte, and answers each connection once."""

    ANSWER = (
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    )

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self.open: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(writer)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lowered = head.lower()
                body = b""
                if b"transfer-encoding: chunked" in lowered:
                    body = await reader.readuntil(b"0\r\n\r\n")
                elif b"content-length: " in lowered:
                    size = int(lowered.split(b"content-length: ")[1].split(b"\r\n")[0])
                    body = await reader.readexactly(size)
                self.got.append(head + body)
                writer.write(self.ANSWER)
        self.open.discard(writer)
        writer.close()


@pytest.fixture
async def raw_localai(kit):
    """The scripted LocalAI's place, taken by one that shows the bytes."""
    await kit.localai.stop()
    localai = RawLocalAI()
    server = await asyncio.start_server(localai.serve, "127.0.0.1", 0, limit=2**20)
    kit.localai.port = server.sockets[0].getsockname()[1]
    yield localai
    server.close()
    for writer in tuple(localai.open):
        writer.close()
    await kit.eventually(lambda: not localai.open)


async def talk(port: int, request: bytes, *, limit_s: float = 10.0) -> bytes:
    """All that comes back until the other side closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(limit_s):
        with contextlib.suppress(ConnectionError):
            writer.write(request)
            await writer.drain()
        answer = await reader.read()
    writer.close()
    return answer


def said(answer: bytes) -> tuple[int, str]:
    """Status and code of a refusal, which is always JSON of the one shape."""
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert b"connection: close" in lines
    assert b"content-length: %d" % len(body) in lines
    error = msgspec.json.decode(body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return int(head.split(b" ")[1]), error["code"]


MALFORMED = (400, "bad_request")

REFUSED = {
    "length and encoding": (
        POST + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        MALFORMED,
    ),
    "encoding and length": (CHUNKED + b"Content-Length: 4\r\n\r\n0\r\n\r\n", MALFORMED),
    "two equal lengths": (
        POST + b"Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}",
        MALFORMED,
    ),
    "two lengths": (POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x", MALFORMED),
    "a list of lengths": (POST + b"Content-Length: 2, 2\r\n\r\n{}", MALFORMED),
    "a signed length": (POST + b"Content-Length: +2\r\n\r\n{}", MALFORMED),
    "a negative length": (POST + b"Content-Length: -2\r\n\r\n{}", MALFORMED),
    "a hexadecimal length": (POST + b"Content-Length: 0x2\r\n\r\n{}", MALFORMED),
    "an empty length": (POST + b"Content-Length: \r\n\r\n", MALFORMED),
    "a length beyond all numbers": (
        POST + b"Content-Length: " + b"9" * 25 + b"\r\n\r\n",
        MALFORMED,
    ),
    "a folded header": (POST + b"X-A: b\r\n c\r\nContent-Length: 2\r\n\r\n{}", MALFORMED),
    "a folded encoding": (POST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", MALFORMED),
    "bare line feeds": (
        b"POST /v1/models HTTP/1.1\nHost: x\nContent-Length: 2\n\n{}",
        MALFORMED,
    ),
    "one bare line feed": (POST + b"X-A: b\nContent-Length: 2\r\n\r\n{}", MALFORMED),
    "a bare carriage return": (POST + b"X-A: b\rX-B: c\r\nContent-Length: 2\r\n\r\n{}", MALFORMED),
    "a space before a colon": (POST + b"Content-Length : 2\r\n\r\n{}", MALFORMED),
    "a space before the encoding's colon": (
        POST + b"Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        MALFORMED,
    ),
    "a fold as first header": (b"GET /v1/models HTTP/1.1\r\n Host: x\r\n\r\n", MALFORMED),
    "a header without a name": (GET + b": b\r\n\r\n", MALFORMED),
    "a header with an odd name": (GET + b"X(A): b\r\n\r\n", MALFORMED),
    "a zero byte in a header": (GET + b"X-A: a\x00b\r\n\r\n", MALFORMED),
    "a control character in a header": (GET + b"X-A: a\x01b\r\n\r\n", MALFORMED),
    "chunked, then identity": (
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        MALFORMED,
    ),
    "identity": (
        POST + b"Transfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}",
        MALFORMED,
    ),
    "xchunked": (
        POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        (501, "transfer_encoding"),
    ),
    "gzip, then chunked": (
        POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        (501, "transfer_encoding"),
    ),
    "chunked twice": (CHUNKED + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", MALFORMED),
    "chunked and identity": (CHUNKED + b"Transfer-Encoding: identity\r\n\r\n0\r\n\r\n", MALFORMED),
    "a tab of the wrong kind": (
        POST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        MALFORMED,
    ),
    "chunks of HTTP/1.0": (
        b"POST /v1/models HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        (400, "bad_framing"),
    ),
    "a chunk beyond all numbers": (CHUNKED + b"\r\nFFFFFFFFFFFFFFFFF\r\n{}\r\n", MALFORMED),
    "a chunk with a prefix": (CHUNKED + b"\r\n0x2\r\n{}\r\n0\r\n\r\n", MALFORMED),
    "a negative chunk": (CHUNKED + b"\r\n-2\r\n{}\r\n0\r\n\r\n", MALFORMED),
    "chunks with bare line feeds": (CHUNKED + b"\r\n2\n{}\n0\n\n", MALFORMED),
    "a chunk without its end": (CHUNKED + b"\r\n2\r\n{}0\r\n\r\n", MALFORMED),
    "a chunk's size with a space": (CHUNKED + b"\r\n2 \r\n{}\r\n0\r\n\r\n", MALFORMED),
    "a line feed in a chunk's extension": (CHUNKED + b"\r\n2;a\nb\r\n{}\r\n0\r\n\r\n", MALFORMED),
    "an endless chunk extension": (CHUNKED + b"\r\n2;" + b"a" * 10**6, MALFORMED),
    "an endless chunk size": (CHUNKED + b"\r\n" + b"0" * 10**6, MALFORMED),
    "an endless trailer": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\nX-T: " + b"a" * 10**6, MALFORMED),
    "endless trailers": (CHUNKED + b"\r\n2\r\n{}\r\n0\r\n" + b"X-T: y\r\n" * 10**5, MALFORMED),
    "a length as trailer": (
        CHUNKED + b"\r\n2\r\n{}\r\n0\r\nContent-Length: 5\r\n\r\n",
        MALFORMED,
    ),
    "HTTP/0.9": (b"GET /v1/models\r\n\r\n", (505, "http_version")),
    "the preface of HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", MALFORMED),
    "HTTP/2.0 on a line": (b"GET /v1/models HTTP/2.0\r\nHost: x\r\n\r\n", (505, "http_version")),
    "HTTP/1.2": (b"GET /v1/models HTTP/1.2\r\nHost: x\r\n\r\n", MALFORMED),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", MALFORMED),
    "a zero byte in the path": (b"GET /v1/mo\x00dels HTTP/1.1\r\nHost: x\r\n\r\n", MALFORMED),
    "bytes in the path": (b"GET /v1/mo\xc3\xa9dels HTTP/1.1\r\nHost: x\r\n\r\n", MALFORMED),
    "a fragment": (b"GET /v1/models#x HTTP/1.1\r\nHost: x\r\n\r\n", (400, "bad_target")),
    "no path": (b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", (400, "bad_target")),
    "another scheme": (b"GET file:///etc HTTP/1.1\r\nHost: x\r\n\r\n", (400, "bad_target")),
    "somebody in the address": (
        b"GET http://me@there/v1 HTTP/1.1\r\nHost: x\r\n\r\n",
        (400, "bad_target"),
    ),
    "CONNECT": (
        b"CONNECT example.org:80 HTTP/1.1\r\nHost: example.org\r\n\r\n",
        (405, "method_not_allowed"),
    ),
    "TRACE": (b"TRACE /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", (405, "method_not_allowed")),
    "an unknown method": (b"FOO /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", MALFORMED),
    "a method in small letters": (b"get /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", MALFORMED),
    "a space before the method": (b" GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n", MALFORMED),
    "no host": (b"GET /v1/models HTTP/1.1\r\n\r\n", (400, "bad_host")),
    "two hosts": (GET + b"Host: y\r\n\r\n", (400, "bad_host")),
    "a host that is none": (b"GET /v1 HTTP/1.1\r\nHost: a b/c\r\n\r\n", (400, "bad_host")),
    "another expectation": (
        POST + b"Expect: 200-maybe\r\nContent-Length: 2\r\n\r\n{}",
        (417, "expectation_failed"),
    ),
    "a websocket with a body": (
        POST + UPGRADE + b"Content-Length: 2\r\n\r\n{}",
        (400, "bad_handshake"),
    ),
    "a websocket with chunks": (
        GET + UPGRADE + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        (400, "bad_handshake"),
    ),
    "many headers": (
        GET + b"".join(b"X-%d: y\r\n" % number for number in range(5_000)) + b"\r\n",
        (431, "head_too_large"),
    ),
    "a huge header": (GET + b"X-A: " + b"a" * 3_000_000 + b"\r\n\r\n", (431, "head_too_large")),
    "a huge name": (GET + b"a" * 3_000_000 + b": b\r\n\r\n", (431, "head_too_large")),
    "a huge target": (
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        (414, "target_too_long"),
    ),
    "nothing but line ends": (b"\r\n" * 500_000, (431, "head_too_large")),
}


@pytest.mark.parametrize("shape", REFUSED)
async def test_what_is_refused_never_reaches_localai(kit, raw_localai, shape):
    gateway = await kit.start()
    request, expected = REFUSED[shape]
    assert said(await talk(gateway.port, request)) == expected
    assert raw_localai.got == []
    assert gateway.places.refusals[expected[1]] == 1
    await kit.eventually(lambda: gateway.places.count == 0)


def test_the_page_says_what_is_refused():
    page = (Path(__file__).parents[3] / "docs" / "http-edge.md").read_text(encoding="utf-8")
    listed = re.findall(r"^\| (.+) \| (\d{3}) `(\w+)` \|$", page, re.MULTILINE)
    expected = {(shape, str(status), code) for shape, (_, (status, code)) in REFUSED.items()}
    assert set(listed) == expected
    assert len(listed) == len(REFUSED)


CLOSE = b"Connection: close\r\n"

PASSES = {
    "plain": (POST + CLOSE + b"Content-Length: 2\r\n\r\n{}", b"content-length: 2", b"{}"),
    "chunks": (CHUNKED + CLOSE + b"\r\n1\r\n{\r\n1\r\n}\r\n0\r\n\r\n", b"content-length: 2", b"{}"),
    "chunks in capitals": (
        POST + CLOSE + b"TRANSFER-ENCODING: CHUNKED\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        b"content-length: 2",
        b"{}",
    ),
    "a chunk with an extension": (
        CHUNKED + CLOSE + b'\r\n2;a="b"\r\n{}\r\n0;c\r\n\r\n',
        b"content-length: 2",
        b"{}",
    ),
    "a trailer is dropped": (
        CHUNKED
        + CLOSE
        + b"\r\n2\r\n{}\r\n0\r\nX-Headstart-Class: nonsense\r\nAuthorization: Bearer x\r\n\r\n",
        b"content-length: 2",
        b"{}",
    ),
    "hop-by-hop headers cannot take others away": (
        POST
        + b"Connection: close, content-length, host, authorization, x-forwarded-for\r\n"
        + b"Authorization: Bearer me\r\nX-Forwarded-For: 9.9.9.9\r\nContent-Length: 2\r\n\r\n{}",
        b"authorization: bearer me",
        b"{}",
    ),
    "a header with an underscore is another header": (
        POST + CLOSE + b"Content_Length: 7\r\nContent-Length: 2\r\n\r\n{}",
        b"content_length: 7",
        b"{}",
    ),
    "line ends before a request": (b"\r\n\r\n" + GET + CLOSE + b"\r\n", b"host: x", b""),
    "an address counts more than the host": (
        b"GET http://models.example:81/v1/models?a=b HTTP/1.1\r\nHost: evil\r\n" + CLOSE + b"\r\n",
        b"host: models.example:81",
        b"",
    ),
    "escapes stay escapes": (
        b"GET /v1/%0d%0aX:%20y/%00/%2e%2e/a//b?%23 HTTP/1.1\r\nHost: x\r\n" + CLOSE + b"\r\n",
        b"get /v1/%0d%0ax:%20y/%00/%2e%2e/a//b?%23 http/1.1",
        b"",
    ),
    "another protocol is offered and not taken": (
        GET + b"Connection: close, Upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMA\r\n\r\n",
        b"host: x",
        b"",
    ),
}


@pytest.mark.parametrize("shape", PASSES)
async def test_what_passes_has_one_meaning(kit, raw_localai, shape):
    gateway = await kit.start()
    request, line, body = PASSES[shape]
    answer = await talk(gateway.port, request)
    assert answer.startswith(b"HTTP/1.1 200")
    [got] = raw_localai.got
    head, _, rest = got.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    names = [one.split(b":")[0] for one in lines[1:]]
    assert line in lines
    assert rest == body
    assert names.count(b"host") == 1
    framing = {b"content-length", b"transfer-encoding"}
    assert sum(name in framing for name in names) == (1 if body else 0)
    assert not {b"upgrade", b"http2-settings", b"x-t", b"x-headstart-class"} & set(names)
    if shape == "hop-by-hop headers cannot take others away":
        assert b"host: x" in lines
        assert b"x-forwarded-for: 9.9.9.9, 127.0.0.1" in lines


async def test_who_offers_another_protocol_keeps_its_connection(kit):
    """Java's client offers HTTP/2 with the first request of each connection."""
    gateway = await kit.start()
    offer = (
        GET + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: A\r\n\r\n"
    )
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    for _ in range(2):
        writer.write(offer)
        assert b'{"ok": true}' in await reader.readuntil(b"true}")
    writer.write(offer + GET + b"Connection: close\r\n\r\n")
    assert (await reader.read()).count(b'{"ok": true}') == 2
    writer.close()
    assert len(kit.localai.seen) == 4


async def test_callers_of_http_1_0_get_an_end_instead_of_chunks(kit):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await asyncio.sleep(0)
        writer.write(kit.chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    kit.localai.script = script
    answer = await talk(gateway.port, b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert b"connection: close" in head.lower()
    assert body == b"data: 1\n\ndata: 2\n\n"

    async def known(seen, writer):
        writer.write(kit.reply(b"abc"))

    kit.localai.script = known
    answer = await talk(gateway.port, b"GET /a HTTP/1.0\r\n\r\n")
    assert b"content-length: 3" in answer.lower()
    assert answer.endswith(b"\r\n\r\nabc")


async def test_for_http_1_0_too_an_answer_that_breaks_off_does_not_look_whole(kit):
    gateway = await kit.start()

    async def script(seen, writer):
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + kit.chunk(b"half"))
        await asyncio.sleep(0.05)
        writer.close()

    kit.localai.script = script
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"GET /a HTTP/1.0\r\n\r\n")
    with pytest.raises(ConnectionResetError):
        await reader.read()
    writer.close()


async def test_a_head_that_does_not_end_is_given_up(kit):
    gateway = await kit.start(limits=EdgeLimits(head_s=0.2))
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)

    async def trickle() -> None:
        with contextlib.suppress(ConnectionError):
            for byte in GET + b"X-A: " + b"a" * 10_000:
                writer.write(bytes([byte]))
                await asyncio.sleep(0.01)

    slow = asyncio.ensure_future(trickle())
    assert said(await reader.read()) == (408, "head_timeout")
    slow.cancel()
    writer.close()
    await kit.eventually(lambda: gateway.places.count == 0)


async def test_the_next_head_on_a_connection_has_the_same_time(kit):
    gateway = await kit.start(limits=EdgeLimits(head_s=0.2))
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(GET + b"\r\n")
    await reader.readuntil(b"true}")
    writer.write(GET)
    assert said(await reader.read()) == (408, "head_timeout")
    writer.close()


@pytest.mark.parametrize(
    "head",
    [
        POST + b"Content-Type: application/json\r\nContent-Length: 1000\r\n\r\n",
        b"POST /anything HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n",
    ],
)
async def test_a_body_that_does_not_come_is_given_up(kit, head):
    kit.localai.reads_bodies = False

    async def wait(seen, writer):
        await asyncio.Event().wait()

    kit.localai.script = wait
    gateway = await kit.start(limits=EdgeLimits(body_window_s=0.2))
    assert said(await talk(gateway.port, head + b"{")) == (408, "body_timeout")
    await kit.eventually(lambda: gateway.places.count == 0)


async def test_a_body_that_we_do_not_take_is_not_slow(kit):
    """A LocalAI that reads slowly is no fault of the caller."""
    kit.localai.reads_bodies = False
    go_on = asyncio.Event()

    async def script(seen, writer):
        await go_on.wait()
        writer.write(kit.reply(b"done"))

    kit.localai.script = script
    gateway = await kit.start(limits=EdgeLimits(body_window_s=0.1, body_window_bytes=10**9))
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    size = 32 * 1024**2
    writer.write(b"POST /up HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % size)
    writer.write(bytes(size))
    await kit.eventually(lambda: kit.localai.seen)
    await asyncio.sleep(0.4)
    assert gateway.places.refusals["body_timeout"] == 0
    go_on.set()
    assert (await reader.readuntil(b"done")).startswith(b"HTTP/1.1 200")
    writer.close()


async def test_too_many_connections_take_the_place_of_idle_ones(kit):
    gateway = await kit.start(limits=EdgeLimits(max_connections=3))
    idle = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(3)]
    await kit.eventually(lambda: gateway.places.count == 3)
    answer = await talk(gateway.port, GET + b"Connection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200")
    first, *others = idle
    with contextlib.suppress(ConnectionError):
        assert await first[0].read() == b""
    assert gateway.places.refusals["gave_way"] == 1
    for reader, writer in others:
        writer.write(GET + b"\r\n")
        await reader.readuntil(b"true}")
    for _, writer in idle:
        writer.close()


async def test_where_all_connections_have_a_request_the_next_gets_503(kit):
    async def wait(seen, writer):
        await asyncio.Event().wait()

    kit.localai.script = wait
    gateway = await kit.start(limits=EdgeLimits(max_connections=2))
    busy = [await asyncio.open_connection("127.0.0.1", gateway.port) for _ in range(2)]
    for _, writer in busy:
        writer.write(GET + b"\r\n")
    await kit.eventually(lambda: len(kit.localai.seen) == 2)
    answer = await talk(gateway.port, b"")
    assert said(answer) == (503, "connections")
    assert b"retry-after: 1" in answer
    for _, writer in busy:
        writer.close()
    await kit.eventually(lambda: gateway.places.count == 0)


async def test_a_websocket_keeps_its_place_until_it_ends(kit):
    async def script(seen, writer):
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n")
        await asyncio.Event().wait()

    kit.localai.script = script
    kit.localai.reads_bodies = False
    gateway = await kit.start(limits=EdgeLimits(max_connections=1))
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(GET.replace(b"/v1/models", b"/ws/logs") + UPGRADE + b"\r\n")
    await reader.readuntil(b"\r\n\r\n")
    assert (gateway.places.count, gateway.places.waiting) == (1, 0)
    assert said(await talk(gateway.port, b"")) == (503, "connections")
    writer.close()
    await kit.eventually(lambda: gateway.places.count == 0)


async def test_pipelined_requests_are_answered_in_order(kit):
    async def script(seen, writer):
        await asyncio.sleep(0.02 if seen.target == "/0" else 0)
        writer.write(kit.reply(seen.target.encode() + b";"))

    kit.localai.script = script
    gateway = await kit.start()
    many = b"".join(b"GET /%d HTTP/1.1\r\nHost: x\r\n\r\n" % number for number in range(20))
    answer = await talk(gateway.port, many + GET + b"Connection: close\r\n\r\n")
    bodies = [part.split(b"\r\n\r\n")[-1] for part in answer.split(b";")[:-1]]
    assert bodies == [*(b"/%d" % number for number in range(20)), b"/v1/models"]


async def test_too_many_pipelined_requests_end_behind_those_that_were_taken(kit):
    gateway = await kit.start(limits=EdgeLimits(max_pipelined=4))
    answer = await talk(gateway.port, (GET + b"\r\n") * 1_000)
    assert answer.count(b"HTTP/1.1 200") == len(kit.localai.seen) == 5
    assert gateway.places.refusals["pipeline"] == 1


async def test_nonsense_behind_a_good_request_does_not_spoil_its_answer(kit):
    gateway = await kit.start()
    for nonsense in (b"\x00\x00\r\n\r\n", POST + b"Content-Length: x\r\n\r\n", CHUNKED + b"\r\nx"):
        answer = await talk(gateway.port, GET + b"\r\n" + nonsense)
        assert answer.count(b"HTTP/1.1") == 1
        assert answer.endswith(b'{"ok": true}')


async def test_whoever_leaves_ends_all_that_it_had_asked_for(kit):
    async def wait(seen, writer):
        await asyncio.Event().wait()

    kit.localai.script = wait
    gateway = await kit.start()
    _, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write((GET + b"\r\n") * 3)
    await kit.eventually(lambda: kit.localai.seen)
    writer.close()
    await asyncio.wait_for(kit.localai.seen[0].left.wait(), 10.0)
    await kit.eventually(lambda: gateway.places.count == 0)
    assert len(kit.localai.seen) == 1


async def test_a_body_that_turns_bad_ends_an_answer_that_has_begun(kit):
    kit.localai.reads_bodies = False

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await asyncio.Event().wait()

    kit.localai.script = script
    gateway = await kit.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"POST /up HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n")
    await reader.readuntil(b"data: 1\n\n")
    writer.write(b"nonsense\r\n")
    rest = await reader.read()
    assert b"HTTP/1.1" not in rest
    assert b"0\r\n\r\n" not in rest
    writer.close()


@pytest.mark.parametrize("path", ["/models/apply", "/v1/audio/transcriptions"])
async def test_an_answer_before_the_end_of_a_body_is_the_last_of_its_connection(kit, path):
    kit.localai.reads_bodies = False

    async def refuse(seen, writer):
        writer.write(kit.reply(b'{"error":"too large"}', status="413 Request Entity Too Large"))

    kit.localai.script = refuse
    gateway = await kit.start()
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    kind = b"Content-Type: multipart/form-data; boundary=b\r\n"
    head = b"POST " + path.encode() + b" HTTP/1.1\r\nHost: x\r\n" + kind
    writer.write(head + b"Content-Length: 50000000\r\n\r\n")
    writer.write(b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n--b\r\n')
    answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 413")
    assert b"\r\nconnection: close\r\n" in answer
    assert answer.endswith(b'{"error":"too large"}')
    writer.close()
    await kit.eventually(lambda: gateway.places.count == 0)


async def test_what_comes_behind_a_refusal_is_taken_up_to_a_bound(kit):
    gateway = await kit.start(limits=EdgeLimits(linger_bytes=100_000))
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(b"nonsense\r\n\r\n")
    await reader.readuntil(b"}}")
    with contextlib.suppress(ConnectionError):
        for _ in range(100):
            writer.write(bytes(100_000))
            await writer.drain()
    await kit.eventually(lambda: gateway.places.count == 0)
    writer.close()


async def test_limits_of_heads_are_what_is_configured(kit):
    limits = EdgeLimits(head=replace(HeadLimits(), max_headers=3))
    gateway = await kit.start(limits=limits)
    async with aiohttp.ClientSession(skip_auto_headers=("User-Agent",)) as session:
        async with session.get(gateway.url + "/a") as answer:  # Host, Accept, Accept-Encoding
            assert answer.status == 200
        async with session.get(gateway.url + "/a", headers={"X-A": "1"}) as answer:
            assert answer.status == 431
