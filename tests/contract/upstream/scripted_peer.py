"""A server that does what the test says, and the calls that both ways to it are given."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable

from adapters.upstream_aiohttp import AiohttpUpstream
from adapters.upstream_httptools import HttptoolsUpstream
from contracts.upstream import OutgoingRequest, Upstream

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


def opened(kind: str, url: str) -> Upstream:
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
