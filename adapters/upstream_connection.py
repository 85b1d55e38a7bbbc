"""One plain HTTP/1.1 connection to LocalAI, with one exchange after the other.

The parser is llhttp (httptools), in its strict mode: a bare line feed, a folded header, a
length beside ``chunked`` or two lengths are no HTTP, and end the connection.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import cast

import httptools

from adapters.upstream_answer import HttpAnswer
from adapters.upstream_framing import ends_with_connection, framed
from adapters.upstream_sockets import acked_bytes, is_readable
from adapters.upstream_tunnel import broken_reason
from contracts.upstream import Broken

MAX_HEAD_BYTES = 65_536
"""Of an answer's head, and of all that comes between two pieces of its body."""

MAX_HEADERS = 256

NO_HTTP = "what came back was no HTTP"
CUT_SHORT = "the connection ended in the middle of the answer"


class HttpConnection(asyncio.Protocol):
    """A connection that carries one exchange after the other.

    Parameters
    ----------
    on_free : callable
        Called with it when an exchange has ended and another may follow.
    on_lost : callable
        Called with it when it is gone.

    Attributes
    ----------
    idle_since_s : float
        When its last exchange ended, by the loop's clock.
    is_open : bool
        Whether it may carry another exchange, as far as is known.
    had_answer : bool
        Whether any byte of the present answer has come.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        on_free: Callable[[HttpConnection], None],
        on_lost: Callable[[HttpConnection], None],
    ) -> None:
        self.loop = loop
        self._on_free = on_free
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._answer: HttpAnswer | None = None
        self._headers: list[tuple[bytes, bytes]] = []
        self._has_no_body = False
        self._is_interim = False
        self._is_spoilt = False
        self._needs_parser = False
        self._keeps_alive = False
        self._unseen_bytes = 0
        self._written_bytes = 0
        self._written_before_bytes = 0
        self._nothing_acked = False
        self._writable: asyncio.Future[None] | None = None
        self._is_reading_paused = False
        self.idle_since_s = 0.0
        self.is_open = False
        self.had_answer = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is there."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's has not that base
        self.is_open = True

    async def exchange(
        self,
        head: bytes,
        body: bytes | AsyncIterator[bytes] | None,
        *,
        length: int | None,
        method: str,
    ) -> HttpAnswer:
        """Send a request, and wait for the head of its answer.

        ``length`` is how long an iterated body is said to be; None: it goes in chunks.
        Raises Broken. A cancellation cuts the connection.
        """
        if not self.is_open:
            raise Broken(broken_reason(None))
        answer = self._begin(method)
        if isinstance(body, bytes):
            # One write; above this, copying a body costs more than a second write.
            if len(body) <= MAX_HEAD_BYTES:
                self._write(head + body)
            else:
                self._write(head)
                self._write(body)
        else:
            self._write(head)
            if body is not None:
                answer.sender = self.loop.create_task(self._send_body(answer, body, length))
        try:
            while not answer.is_head_in:
                if answer.error is not None:
                    raise answer.error
                await answer.something()
        except asyncio.CancelledError:
            self.cut(Broken("the request was let go of"))
            raise
        return answer

    @property
    def reached_nobody(self) -> bool:
        """Whether it is known that nothing of the last request came to the other side.

        It is known where the other side closed the connection, and its end of it says that it
        has seen none of our bytes: what had not come then was never given to a server.
        """
        return self._nothing_acked

    def is_usable(self) -> bool:
        """Whether the other side has neither closed it nor sent what nobody asked for.

        Asks the kernel, which knows before the loop does.
        """
        return self.is_open and not is_readable(self._socket())

    def cut(self, error: Broken) -> None:
        """End it at once, and with it what LocalAI does for it."""
        self.is_open = False
        self._end(error)
        if self._transport is not None:
            self._transport.abort()

    def resume_reading(self) -> None:
        """Somebody reads the answer again."""
        if self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = False
            self._transport.resume_reading()

    # What the loop calls.

    def data_received(self, data: bytes) -> None:
        """More of an answer."""
        answer = self._answer
        if answer is None:
            self.cut(Broken(NO_HTTP))
            return
        self.had_answer = True
        self._unseen_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not answer.is_whole:
                self.cut(Broken(NO_HTTP))
                return
            self._is_spoilt = True
        if answer.is_whole:
            self._finish(answer)
        elif self._unseen_bytes > MAX_HEAD_BYTES:
            self.cut(Broken("its head is too long"))
        elif answer.error is not None:
            self.cut(answer.error)
        else:
            answer.wake()

    def eof_received(self) -> None:
        """The other side says no more: for some answers that is the end."""
        answer = self._answer
        self.is_open = False
        if answer is None:
            return
        if answer.is_head_in and ends_with_connection(answer.headers):
            answer.end()
            self._finish(answer)
            return
        if not self.had_answer:
            acked = acked_bytes(self._socket())
            # The handshake counts as one.
            self._nothing_acked = acked is not None and acked <= self._written_before_bytes + 1

    def connection_lost(self, exc: Exception | None) -> None:
        """It is gone."""
        self.is_open = False
        answer = self._answer
        in_answer = answer is not None and answer.is_head_in
        self._end(Broken(CUT_SHORT if in_answer else broken_reason(exc)))
        # The two hold each other, and would wait for the garbage collector.
        self._transport = None
        del self._parser
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._on_lost(self)

    def pause_writing(self) -> None:
        """The other side takes less than we send."""
        self._writable = self.loop.create_future()

    def resume_writing(self) -> None:
        """There is room again."""
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # What the parser calls.

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header, or a trailer, which is left out."""
        if self._answer is not None and not self._answer.is_head_in:
            self._headers.append((name, value.rstrip(b" \t")))

    def on_headers_complete(self) -> None:
        """The head is whole: of the answer, or of one that only says that it will come."""
        answer = self._answer
        if answer is None or answer.is_whole:
            self._is_spoilt = True
            return
        headers, self._headers = self._headers, []
        status = self._parser.get_status_code()
        if 100 <= status < 200:
            self._is_interim = True
            return
        if len(headers) > MAX_HEADERS or (
            # Only where it may be: counting costs more than most heads are worth.
            self._unseen_bytes > MAX_HEAD_BYTES
            and sum(len(name) + len(value) for name, value in headers) > MAX_HEAD_BYTES
        ):
            answer.fail(Broken("its head is too long"))
            return
        answer.status, answer.headers = status, tuple(headers)
        answer.is_head_in = True
        if self._has_no_body:
            # The parser knows nothing of HEAD, and would wait for a body.
            self._keeps_alive = self._parser.should_keep_alive()
            self._needs_parser = True
            answer.end()

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        answer = self._answer
        if answer is None or answer.is_whole:
            self._is_spoilt = True
            return
        self._unseen_bytes = 0
        if answer.take(body) and not self._is_reading_paused and self._transport is not None:
            self._is_reading_paused = True
            self._transport.pause_reading()

    def on_message_complete(self) -> None:
        """The answer is whole, or what said that it will come."""
        if self._is_interim:
            self._is_interim = False
            return
        answer = self._answer
        if answer is not None and not answer.is_whole and answer.error is None:
            self._keeps_alive = self._parser.should_keep_alive()
            answer.end()

    def _begin(self, method: str) -> HttpAnswer:
        assert self._answer is None
        answer = self._answer = HttpAnswer(self)
        if self._needs_parser:
            self._needs_parser = False
            self._parser = httptools.HttpResponseParser(self)
        self._has_no_body = method == "HEAD"
        self._headers = []
        self._unseen_bytes = 0
        self._written_before_bytes = self._written_bytes
        self._nothing_acked = self.had_answer = self._keeps_alive = False
        return answer

    def _finish(self, answer: HttpAnswer) -> None:
        """The answer is whole; the connection serves another one, if it can."""
        sender = answer.sender
        reusable = self._keeps_alive and not self._is_spoilt and self.is_open
        if sender is not None and not sender.done():
            # It was answered before all was sent; what is left nobody will take as a body.
            reusable = False
            sender.cancel()
        self._answer = None
        answer.wake()
        if reusable:
            self.resume_reading()
            self.idle_since_s = self.loop.time()
            self._on_free(self)
        else:
            self.is_open = False
            if self._transport is not None:
                self._transport.close()

    def _end(self, error: Broken) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        answer.fail(error)
        if answer.sender is not None:
            answer.sender.cancel()
        answer.wake()

    async def _send_body(
        self, answer: HttpAnswer, body: AsyncIterator[bytes], length: int | None
    ) -> None:
        try:
            async with aclosing(framed(body, length)) as frames:
                async for pieces in frames:
                    if self._answer is not answer:
                        return
                    self._write(*pieces)
                    if self._writable is not None:
                        await self._writable
        except Exception as error:  # noqa: BLE001 - whatever its source raises ends the request
            if self._answer is answer:
                broken = Broken("the request's body ended early")
                broken.__cause__ = error
                self.cut(error if isinstance(error, Broken) else broken)

    def _write(self, *pieces: bytes) -> None:
        self._written_bytes += sum(map(len, pieces))
        if self._transport is None or self._transport.is_closing():
            return
        if len(pieces) == 1:
            self._transport.write(pieces[0])
        else:
            self._transport.writelines(pieces)

    def _socket(self) -> socket.socket | None:
        if self._transport is None:
            return None
        found: socket.socket | None = self._transport.get_extra_info("socket")
        return found
