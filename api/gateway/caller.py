"""The caller's side of a request: what it sends, whether it is still there, what it gets."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

from api.gateway.detect import ApiStyle
from api.gateway.headers import Header
from api.gateway.origins import OriginBook
from api.gateway.problems import Problem, error_body, error_event, retry_after

PAYLOAD_TOO_LARGE = 413
LINGER_REAL_S = 0.5
LINGER_BYTES = 256 * 1024**2

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
WhenLeft = Callable[[Callable[[], None]], None]
AnswerNow = Callable[[int, Iterable[Header], bytes], bool]


class CallerLeft(Exception):
    """The caller has closed its connection."""


class Caller:
    """One caller over one request.

    ``origin`` is that of the page that it asks for, ``origins`` what LocalAI allowed to whom.

    Whoever works for it does so in the task that made this object: when the caller leaves
    while nobody reads from it, that task is cancelled and ``has_left`` says why.

    ``when_left``: what the server calls us by when it leaves, where it can; else a task waits.
    ``write_now``: what takes a piece of the answer at once, where the server has that, and
    ``answer_now`` a whole answer.
    """

    __slots__ = (
        "_answer_now",
        "_origin",
        "_origins",
        "_receive",
        "_send",
        "_task",
        "_watcher",
        "_when_left",
        "_write_now",
        "has_left",
        "is_over",
        "status",
    )

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        origin: bytes | None = None,
        origins: OriginBook | None = None,
        when_left: WhenLeft | None = None,
        write_now: Callable[[bytes], bool] | None = None,
        answer_now: AnswerNow | None = None,
    ) -> None:
        self._answer_now = answer_now
        self._when_left = when_left
        self._write_now = write_now
        self._receive = receive
        self._send = send
        self._origin = origin
        self._origins = origins
        self._task = asyncio.current_task()
        self._watcher: asyncio.Task[None] | None = None
        self.has_left = False
        self.is_over = False
        self.status: int | None = None

    @property
    def has_answer(self) -> bool:
        """Whether a status line was sent: from then on errors are events, or nothing."""
        return self.status is not None

    async def read(self) -> tuple[bytes, bool]:
        """The next piece of the body, and whether more comes. Raises CallerLeft."""
        message = await self._receive()
        if message["type"] != "http.request":
            self.has_left = True
            raise CallerLeft
        return message.get("body", b""), message.get("more_body", False)

    def watch(self) -> None:
        """From now on nobody reads from the caller: cancel the work when it leaves."""
        if self.is_over:
            return
        if self._when_left is not None:
            self._when_left(self.interrupt)
        elif self._watcher is None:
            self._watcher = asyncio.get_running_loop().create_task(self._wait_for_leaving())

    def interrupt(self, *, has_left: bool = True) -> None:
        """Cancel the work, since its caller has left or sends what it may not."""
        if not self.is_over and self._task is not None:
            self.has_left = has_left
            self._task.cancel()

    def resume(self) -> None:
        """The cancellation was for us, and is dealt with."""
        if self._task is not None:
            self._task.uncancel()

    def let_go(self) -> None:
        """Nothing more is wanted of it."""
        self.is_over = True
        if self._watcher is not None:
            self._watcher.cancel()

    async def start(self, status: int, headers: Iterable[Header]) -> None:
        """Send the status line and the headers of LocalAI's answer."""
        listed = list(headers)
        if self._origin is not None and self._origins is not None:
            self._origins.note(self._origin, listed)
        await self._start(status, listed)

    async def pass_whole(self, status: int, headers: list[Header], data: bytes) -> None:
        """Send LocalAI's answer where all of it is here, in one piece if there is room."""
        if self._origin is not None and self._origins is not None:
            self._origins.note(self._origin, headers)
        if self._answer_now is not None and self._answer_now(status, headers, data):
            self.status = status
            self.let_go()
            return
        await self._start(status, headers)
        await self.finish(data)

    async def begin(self, status: int, headers: Iterable[Header]) -> None:
        """The same for an answer of our own, which its page's origin may have to be let read."""
        listed = list(headers)
        names = {name for name, _ in listed}
        if self._origins is not None:
            # One made out of an answer of LocalAI's has them already.
            allowed = self._origins.headers_for(self._origin)
            listed += [header for header in allowed if header[0] not in names]
        await self._start(status, listed)

    async def give(self, data: bytes) -> None:
        """Send a piece of the answer; returns when there is room for more."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    def give_now(self, data: bytes) -> bool:
        """The same without waiting; False: there is no room now, or no way."""
        return self._write_now is not None and not self.is_over and self._write_now(data)

    async def finish(self, data: bytes = b"") -> None:
        """Send the last piece."""
        # The server reports the end of an answer as a disconnect; it is none.
        self.let_go()
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def answer(self, status: int, body: bytes, headers: Iterable[Header]) -> None:
        """Send a whole answer of our own."""
        await self.begin(status, [(b"content-length", b"%d" % len(body)), *headers])
        await self.finish(body)

    async def refuse(
        self,
        problem: Problem,
        style: ApiStyle,
        headers: Iterable[Header] = (),
        *,
        is_between_events: bool = True,
    ) -> None:
        """Say what went wrong: as an answer, or as the last event of one that has begun."""
        if self.has_answer:
            event = error_event(problem, style, is_between_events=is_between_events)
            await self.finish(event)
            return
        own = [(b"content-type", b"application/json"), *headers, *problem.headers]
        if problem.retry_after_s is not None:
            own.append((b"retry-after", retry_after(problem.retry_after_s)))
        body = error_body(problem, style)
        if problem.status != PAYLOAD_TOO_LARGE:
            await self.answer(problem.status, body, own)
            return
        await self.begin(problem.status, [(b"content-length", b"%d" % len(body)), *own])
        await self.give(body)
        await self._take_rest()
        await self.finish()

    async def _start(self, status: int, headers: list[Header]) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": headers})

    async def _take_rest(self) -> None:
        """Take what is still being sent: closing at once would cost the caller our answer."""
        size = 0
        with contextlib.suppress(TimeoutError):
            # A socket's pace, which no fast clock changes.
            async with asyncio.timeout(LINGER_REAL_S):  # noqa: TID251 - as above
                while size < LINGER_BYTES:
                    message = await self._receive()
                    size += len(message.get("body", b""))
                    if not message.get("more_body", False):
                        return

    async def _wait_for_leaving(self) -> None:
        while not self.is_over:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.interrupt()
                return
