"""One request and its answer: uvicorn's, with a way of its own to write answers.

Uvicorn writes head and body apart, and looks for odd bytes in each header with two regular
expressions. Here the head waits for what follows in the same turn of the loop, so that most
answers are one write, and one look at the whole head is enough: a tenth of what a small
request costs here.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import (
        ASGI3Application,
        ASGISendEvent,
        HTTPResponseBodyEvent,
    )

LEAVING = "headstart.leaving"
"""The ASGI extension by which an app hears that its caller has left: see ``when_left``."""

WRITING = "headstart.writing"
"""The ASGI extension by which an app writes a piece without a task: see ``write_now``."""

ANSWERING = "headstart.answering"
"""The ASGI extension by which an app writes a whole answer at once: see ``answer_now``."""

_BODILESS = (204, 304)
_RESET = struct.pack("ii", 1, 0)
_JOINED_BYTES = 65_536
"""A body up to this is copied behind its head, or between the marks of a chunk."""


class EdgeCycle(RequestResponseCycle):
    """Answers of any status; 204 and 304 have no body, whatever length they name."""

    _waiting_head = b""
    _has_no_body = False
    _on_left: Callable[[], None] | None = None

    def when_left(self, callback: Callable[[], None]) -> None:
        """Call it once the caller has left, be it now.

        A task that waits for ``http.disconnect`` would be the other way: 8 µs for each request.
        """
        self._on_left = callback
        # What comes now is nobody's, but its end must not go unseen.
        self.flow.resume_reading()
        if self.disconnected:
            asyncio.get_running_loop().call_soon(callback)

    def leave(self) -> None:
        """The caller has left."""
        self.disconnected = True
        self.message_event.set()
        if self._on_left is not None:
            self._on_left()

    def write_now(self, data: bytes) -> bool:
        """Send a piece of the answer, if it has begun and its caller takes more now."""
        if self.flow.write_paused or self.disconnected or not self.response_started:
            return False
        self._go_on({"type": "http.response.body", "body": data, "more_body": True})
        return True

    def answer_now(self, status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer, if there is room now; False: nothing of it was sent.

        Two messages that go through coroutines, and a call that waits for the second, are 4 µs.
        """
        if self.flow.write_paused or self.disconnected or self.response_started:
            return False
        self.response_started = True
        self.waiting_for_100_continue = False
        self._hold_head(status, headers)
        self._go_on({"type": "http.response.body", "body": body, "more_body": False})
        return True

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of the answer; returns when there is room for more."""
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start" and not self.response_started:
            self.response_started = True
            self.waiting_for_100_continue = False
            self._hold_head(message["status"], message.get("headers", ()))
            asyncio.get_running_loop().call_soon(self._write_head)
        elif message["type"] == "http.response.body" and self.response_started:
            if self.response_complete:
                raise RuntimeError("there is more of an answer than its end")
            self._go_on(message)
        else:
            raise RuntimeError(f"{message['type']} is not what an answer has here")

    def _hold_head(self, status: int, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Make up the head; it is written with what follows."""
        self._has_no_body = self.scope["method"] == "HEAD" or status in _BODILESS
        lines = [STATUS_LINE.get(status) or b"HTTP/1.1 %d \r\n" % status]
        says_close = False
        if self.more_body:
            # Answered before its body is here: what comes of that is read by nobody.
            self.keep_alive = False
        for name, value in headers:
            lines.append(name + b": " + value + b"\r\n")
            # Names are in lower case, as ASGI has them.
            if name == b"content-length":
                self.expected_content_length = int(value)
                self.chunked_encoding = False
            elif name == b"connection" and b"close" in value:
                says_close, self.keep_alive = True, False
        if not self.keep_alive and not says_close:
            lines.append(b"connection: close\r\n")
        if self.chunked_encoding is None and not self._has_no_body:
            self.chunked_encoding = self._frames_unknown_length()
            if self.chunked_encoding:
                lines.append(b"transfer-encoding: chunked\r\n")
        lines.append(b"\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines):
            raise RuntimeError("a header of the answer holds a line break")
        self._waiting_head = head

    def _frames_unknown_length(self) -> bool:
        """Whether a body of unknown length goes in chunks."""
        return True

    def _go_on(self, message: HTTPResponseBodyEvent) -> None:
        body, is_last = message.get("body", b""), not message.get("more_body", False)
        if self._has_no_body:
            self.expected_content_length, body = 0, b""
        if self.chunked_encoding and not self._has_no_body:
            self._write(*_chunk(body), b"0\r\n\r\n" if is_last else b"")
        else:
            self.expected_content_length -= len(body)
            if self.expected_content_length < 0:
                raise RuntimeError("there is more of an answer than its length says")
            self._write(body)
        if is_last:
            if self.expected_content_length != 0:
                raise RuntimeError("there is less of an answer than its length says")
            self.response_complete = True
            self._on_left = None
            self.message_event.set()
            if not self.keep_alive and not self.more_body:
                self.transport.close()
            self.on_response()

    def _write(self, *pieces: bytes) -> None:
        head, self._waiting_head = self._waiting_head, b""
        whole = [piece for piece in (head, *pieces) if piece]
        if sum(map(len, whole)) <= _JOINED_BYTES:
            self.transport.write(b"".join(whole))
        else:
            self.transport.writelines(whole)

    def _write_head(self) -> None:
        """Nothing followed at once, so the head goes alone."""
        if self._waiting_head and not self.transport.is_closing():
            self._write()


class OldCallerCycle(EdgeCycle):
    """For HTTP/1.0, which has no chunks: an answer of unknown length ends with its connection."""

    _ends_with_connection = False

    async def run_asgi(self, app: ASGI3Application) -> None:
        """Serve it; an answer that breaks off must not end as a whole one does."""
        await super().run_asgi(app)
        if self._ends_with_connection and not self.response_complete:
            taken = self.transport.get_extra_info("socket")
            if taken is not None:
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self.transport.abort()

    def _frames_unknown_length(self) -> bool:
        self._ends_with_connection = True
        return False

    def _go_on(self, message: HTTPResponseBodyEvent) -> None:
        if self._ends_with_connection:
            self.expected_content_length = len(message.get("body", b""))
        super()._go_on(message)


def _chunk(body: bytes) -> tuple[bytes, ...]:
    return (b"%x\r\n" % len(body), body, b"\r\n") if body else ()
