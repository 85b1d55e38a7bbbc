"""The load of a benchmark: callers that cost as little as they can, and what they saw."""

from __future__ import annotations

import asyncio
import re
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from contracts.errors import Transient

_STAMP = re.compile(rb"t:(\d+);")
_END = b"0\r\n\r\n"
_TAIL_BYTES = 40
_GRACE_S = 30.0


@dataclass(slots=True)
class Loop:
    """What callers in a closed loop saw.

    Attributes
    ----------
    times_s : array
        How long each request took, from its writing to the last byte of its answer.
    took_s : float
        How long all of it took.
    """

    times_s: array[float] = field(default_factory=lambda: array("d"))
    took_s: float = 0.0


@dataclass(slots=True)
class Stream:
    """What one caller of a stream saw.

    Attributes
    ----------
    delays_s : array
        For each piece, the time from the server's writing it to its being read here.
    took_s : float or None
        From the request to the end; None: the end never came.
    """

    delays_s: array[float] = field(default_factory=lambda: array("d"))
    took_s: float | None = None


def post(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    """One request, as an OpenAI client sends it."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: application/json\r\n"
        f"Accept-Encoding: identity\r\nUser-Agent: headstart-bench\r\n"
        f"Authorization: Bearer sk-bench\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def run_loop(port: int, request: bytes, *, callers: int, seconds: float) -> Loop:
    """Each caller sends again as soon as it has its answer, for so many seconds.

    Raises Transient when an answer is none, with what came.
    """
    seen = Loop()
    started_s = time.perf_counter()
    end_s = started_s + seconds
    await _all(
        [partial(_LoopCaller, request, end_s, seen.times_s) for _ in range(callers)],
        port,
        limit_s=seconds + _GRACE_S,
    )
    seen.took_s = time.perf_counter() - started_s
    return seen


async def run_streams(
    port: int, request: bytes, *, callers: int, limit_s: float, apart_s: float = 0.0
) -> list[Stream]:
    """Callers that each read one stream to its end, begun ``apart_s`` after one another."""
    streams = [Stream() for _ in range(callers)]
    await _all(
        [partial(_StreamCaller, request, one) for one in streams],
        port,
        limit_s=limit_s + _GRACE_S,
        apart_s=apart_s,
    )
    return streams


_Made = Callable[["asyncio.Future[None]"], asyncio.Protocol]


async def _all(made: list[_Made], port: int, *, limit_s: float, apart_s: float = 0.0) -> None:
    loop = asyncio.get_running_loop()
    ends: list[asyncio.Future[None]] = []
    transports: list[asyncio.BaseTransport] = []
    transport: asyncio.BaseTransport
    try:
        async with asyncio.timeout(limit_s):
            for make in made:
                done: asyncio.Future[None] = loop.create_future()
                ends.append(done)
                transport, _ = await loop.create_connection(partial(make, done), "127.0.0.1", port)
                transports.append(transport)
                if apart_s > 0.0:
                    await asyncio.sleep(apart_s)
            await asyncio.gather(*ends)
    except TimeoutError:
        raise Transient(f"no end after {limit_s:g} s") from None
    except OSError as error:
        raise Transient(f"no connection: {error.strerror}") from error
    finally:
        for transport in transports:
            transport.close()
        for end in ends:
            end.cancel()


class _Caller(asyncio.Protocol):
    def __init__(self, request: bytes, done: asyncio.Future[None]) -> None:
        self._request = request
        self._done = done
        self._data = b""
        self._sent_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport: asyncio.WriteTransport = transport  # type: ignore[assignment] # uvloop's
        self._send()

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail("the connection was closed" if exc is None else f"it broke: {exc}")

    def _send(self) -> None:
        self._sent_s = time.perf_counter()
        self._transport.write(self._request)

    def _end(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    def _fail(self, message: str) -> None:
        if not self._done.done():
            self._done.set_exception(Transient(message))

    def _is_good(self, data: bytes) -> bool:
        if data.startswith(b"HTTP/1.1 200"):
            return True
        self._fail(f"it answered {data[:300].decode('latin-1')!r}")
        return False


class _LoopCaller(_Caller):
    """Sends again and again. Most answers are known by their last bytes."""

    def __init__(
        self, request: bytes, end_s: float, times_s: array[float], done: asyncio.Future[None]
    ) -> None:
        super().__init__(request, done)
        self._end_s = end_s
        self._times_s = times_s
        self._tail: bytes | None = None

    def data_received(self, data: bytes) -> None:
        if self._data:
            data = self._data + data
        if not (self._tail is not None and data.endswith(self._tail)) and not self._is_whole(data):
            self._data = data
            return
        now_s = time.perf_counter()
        self._data = b""
        self._times_s.append(now_s - self._sent_s)
        if not data.startswith(b"HTTP/1.1 200"):
            self._is_good(data)
        elif now_s < self._end_s:
            self._send()
        else:
            self._end()

    def _is_whole(self, data: bytes) -> bool:
        head, separator, body = data.partition(b"\r\n\r\n")
        if not separator:
            return False
        lower = head.lower()
        _, announced, rest = lower.partition(b"content-length:")
        length = rest.split(b"\r\n", 1)[0]
        whole = len(body) >= int(length) if announced else body.endswith(_END)
        if whole:
            self._tail = body[-_TAIL_BYTES:]
        return whole


class _StreamCaller(_Caller):
    """Reads one stream and compares the times in it with its own."""

    def __init__(self, request: bytes, seen: Stream, done: asyncio.Future[None]) -> None:
        super().__init__(request, done)
        self._seen = seen
        self._has_begun = False

    def data_received(self, data: bytes) -> None:
        now_ns = time.monotonic_ns()
        if not self._has_begun:
            self._has_begun = True
            if not self._is_good(data):
                return
        data = self._data + data
        end = 0
        for found in _STAMP.finditer(data):
            self._seen.delays_s.append((now_ns - int(found[1])) / 1e9)
            end = found.end()
        # The end of one piece may hold the beginning of the next stamp.
        self._data = data[max(end, len(data) - 32) :]
        if data.endswith(_END):
            self._seen.took_s = time.perf_counter() - self._sent_s
            self._end()
