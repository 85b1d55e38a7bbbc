"""The mechanics of a tunnel: handshake, both directions, and when it was last used."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from types import TracebackType

from api.gateway.caller import Receive, Send
from api.gateway.headers import Header, RequestHead
from api.gateway.problems import upstream_error, upstream_timeout
from contracts.errors import Transient
from contracts.ports import Clock
from contracts.upstream import Tunnel

SWITCHED = 101
_MAX_HEAD_BYTES = 65_536
_MAX_KEPT_BYTES = 1_048_576
_MAX_REFUSAL_BYTES = 1_048_576
_REFUSAL_SILENCE_REAL_S = 1.0


class CallerGone(Exception):
    """The caller of a websocket has closed its connection."""


class CallerSide:
    """The caller's end. What comes before it can go on is kept, up to a bound."""

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive = receive
        self._send = send
        self._kept = bytearray()
        self.status: int | None = None

    async def fill(self) -> None:
        """Read once and keep it. Raises CallerGone."""
        message = await self._receive()
        if message["type"] != "tunnel.bytes":
            raise CallerGone
        self._kept += message["bytes"]
        if len(self._kept) > _MAX_KEPT_BYTES:
            # Nobody may send so much before the handshake is answered.
            raise CallerGone

    async def take(self) -> bytes:
        """What was kept, else what comes next. Raises CallerGone."""
        if not self._kept:
            await self.fill()
        data = bytes(self._kept)
        self._kept.clear()
        return data

    async def give(self, data: bytes) -> None:
        """Send; returns when there is room for more. Raises CallerGone."""
        try:
            await self._send({"type": "tunnel.bytes", "bytes": data})
        except ConnectionError:
            raise CallerGone from None

    async def close(self) -> None:
        """Close the connection."""
        await self._send({"type": "tunnel.close"})


class Activity:
    """When something last passed, and whether the tunnel counts as in flight."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_s = clock.monotonic_s()
        self._spoke = asyncio.Event()
        self.counts = True

    @property
    def silent_s(self) -> float:
        """For how long nothing has passed."""
        return self._clock.monotonic_s() - self._last_s

    def note(self) -> None:
        """Something passes now."""
        self._last_s = self._clock.monotonic_s()
        self._spoke.set()

    async def spoken(self) -> None:
        """Wait until something passes again."""
        self._spoke.clear()
        await self._spoke.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class HandshakeAnswer:
    """How the other side answers: ``head`` as it came, and what came behind it."""

    status: int
    head: bytes
    rest: bytes
    content_length: int | None


def handshake_bytes(head: RequestHead, headers: list[Header], prefix: bytes) -> bytes:
    """The request that asks for the websocket over there."""
    upgrade = head.get(b"upgrade") or b"websocket"
    lines = [
        head.method.encode() + b" " + prefix + head.target + b" HTTP/1.1",
        *(name + b": " + value for name, value in headers),
        b"connection: Upgrade",
        b"upgrade: " + upgrade,
    ]
    return b"\r\n".join(lines) + b"\r\n\r\n"


class TunnelRelay:
    """Relays one tunnel.

    Parameters
    ----------
    on_answer : callable
        Called with each piece that has reached the caller.
    """

    def __init__(
        self,
        tunnel: Tunnel,
        side: CallerSide,
        activity: Activity,
        clock: Clock,
        on_answer: Callable[[], None],
    ) -> None:
        self._tunnel = tunnel
        self._side = side
        self._activity = activity
        self._clock = clock
        self._on_answer = on_answer

    async def run(self, request: bytes, *, first_byte_timeout_s: float) -> None:
        """Shake hands, then relay until either side ends. Raises Problem or CallerGone."""
        try:
            await self._tunnel.write(request)
            async with self._clock.timeout(first_byte_timeout_s):
                answer = await self._read_answer()
            self._side.status = answer.status
            if answer.status == SWITCHED:
                await self._side.give(answer.head + answer.rest)
                await self._both_ways()
            else:
                await self._relay_refusal(answer)
        except TimeoutError:
            limit_s = first_byte_timeout_s
            raise upstream_timeout(f"LocalAI sent nothing for {limit_s:g} s.") from None
        except Transient as error:
            raise upstream_error(f"LocalAI broke off the websocket: {error}.") from error
        finally:
            self._tunnel.close()

    async def _read_answer(self) -> HandshakeAnswer:
        data = b""
        while b"\r\n\r\n" not in data:
            more = await self._tunnel.read()
            if not more or len(data) > _MAX_HEAD_BYTES:
                raise upstream_error("LocalAI did not answer the handshake.")
            data += more
        head, _, rest = data.partition(b"\r\n\r\n")
        status = head[9:12]
        if not (head.startswith(b"HTTP/1.") and status.isdigit()):
            raise upstream_error("LocalAI did not answer the handshake with HTTP.")
        length = next(
            (
                line.partition(b":")[2].strip()
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"content-length:")
            ),
            b"",
        )
        return HandshakeAnswer(
            status=int(status),
            head=head + b"\r\n\r\n",
            rest=rest,
            content_length=int(length) if length.isdigit() else None,
        )

    async def _relay_refusal(self, answer: HandshakeAnswer) -> None:
        """A handshake that was refused ends the connection, so that nothing follows on it.

        Were it kept open, the caller's next bytes would reach LocalAI past this gateway.
        """
        await self._side.give(answer.head[:-2] + b"connection: close\r\n\r\n" + answer.rest)
        limit_bytes = _MAX_REFUSAL_BYTES if answer.content_length is None else answer.content_length
        given_bytes = len(answer.rest)
        try:
            while given_bytes < limit_bytes:
                async with self._clock.timeout(_REFUSAL_SILENCE_REAL_S * self._clock.scale):
                    data = await self._tunnel.read()
                if not data:
                    return
                await self._side.give(data)
                given_bytes += len(data)
        except TimeoutError:
            return

    async def _both_ways(self) -> None:
        tasks = {asyncio.ensure_future(self._inward()), asyncio.ensure_future(self._outward())}
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _inward(self) -> None:
        while True:
            data = await self._side.take()
            self._activity.note()
            await self._tunnel.write(data)

    async def _outward(self) -> None:
        while data := await self._tunnel.read():
            self._activity.note()
            await self._side.give(data)
            self._on_answer()


class Beside(AbstractAsyncContextManager[None]):
    """Runs something beside a block, until the block ends."""

    def __init__(self, work: Coroutine[object, object, None]) -> None:
        self._task = asyncio.ensure_future(work)

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Stop it."""
        self._task.cancel()
        await asyncio.wait({self._task})
