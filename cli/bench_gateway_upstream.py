"""What a benchmark of the gateway has behind it: a server that does as little as it can.

``python -m cli.bench_gateway_upstream`` prints its port and serves until it is ended. What a
request's body says decides the answer: ``max_tokens`` pieces of a stream, ``seed`` milliseconds
apart, each with the time at which it was written (``t:<ns>;``, the machine's monotonic clock);
without ``stream`` one small document.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import OrderedDict
from typing import ClassVar

import httptools
import msgspec
import uvloop

_MAX_KNOWN = 4096
_MAX_KNOWN_BYTES = 4096
_DOCUMENT = (
    b'{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"bench",'
    b'"choices":[{"index":0,"finish_reason":"stop","message":{"role":"assistant",'
    b'"content":"The quick brown fox jumps over the lazy dog."}}],'
    b'"usage":{"prompt_tokens":12,"completion_tokens":10,"total_tokens":22}}'
)
ANSWER = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Correlation-ID: 1\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_DOCUMENT), _DOCUMENT)
)
_STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n"
)
_EVENT = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"bench","choices":[{"index":0,"finish_reason":null,"delta":{"content":"t:%d;"}}]}\n\n'
)
_LAST = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,'
    b'"model":"bench","choices":[{"index":0,"finish_reason":"stop","delta":{}}]}\n\n'
    b"data: [DONE]\n\n"
)


class _Wish(msgspec.Struct):
    stream: bool = False
    max_tokens: int = 1
    seed: int = 0


_WISHES = msgspec.json.Decoder(_Wish)


class UpstreamProtocol(asyncio.Protocol):
    """One connection."""

    known: ClassVar[OrderedDict[bytes, None]] = OrderedDict()
    """Requests that were read as a whole before: a benchmark sends the same again and again."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._is_between = True
        self._bodies: list[bytes] = []
        self._is_json = False
        self._piece = b""
        self._streaming: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A proxy connects."""
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment] # uvloop's

    def connection_lost(self, exc: Exception | None) -> None:
        """It has left."""
        del exc  # that it did is all that matters
        if self._streaming is not None:
            self._streaming.cancel()

    def data_received(self, data: bytes) -> None:
        """Part of a request, or one that is known already: reading it would cost ten times more."""
        if self._is_between and data in self.known:
            self._transport.write(ANSWER)
            return
        self._piece = data if self._is_between else b""
        self._is_between = False
        self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Only whether the body is JSON matters."""
        if name.lower() == b"content-type":
            self._is_json = value.startswith(b"application/json")

    def on_body(self, body: bytes) -> None:
        """Keep what decides; an upload is taken and forgotten."""
        if self._is_json:
            self._bodies.append(body)

    def on_message_complete(self) -> None:
        """Answer."""
        body = b"".join(self._bodies)
        self._bodies.clear()
        self._is_between = True
        wish = _WISHES.decode(body) if self._is_json and body else _Wish()
        self._is_json = False
        if wish.stream:
            self._streaming = self._loop.create_task(self._stream(wish))
            return
        if 0 < len(self._piece) <= _MAX_KNOWN_BYTES and self._piece.endswith(body):
            self.known[self._piece] = None
            if len(self.known) > _MAX_KNOWN:
                self.known.popitem(last=False)
        self._transport.write(ANSWER)

    async def _stream(self, wish: _Wish) -> None:
        self._transport.write(_STREAM_HEAD)
        interval_s = wish.seed / 1000.0
        due_s = self._loop.time()
        for _ in range(wish.max_tokens):
            due_s += interval_s
            await asyncio.sleep(max(0.0, due_s - self._loop.time()))
            self._write_chunk(_EVENT % time.monotonic_ns())
        self._transport.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(_LAST), _LAST))

    def _write_chunk(self, data: bytes) -> None:
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))


async def serve() -> None:
    """Serve on a free port of this machine, which is printed."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(UpstreamProtocol, "127.0.0.1", 0, backlog=1024)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(serve())
