"""The answer that carries a listener's events, and ends with whoever ends first."""

from __future__ import annotations

import asyncio
import contextlib

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.control.feed import EventFeed, Listener
from contracts.ports import Clock

SEND_LIMIT_S = 20.0
"""Real seconds that one piece may take to be sent. A client that reads nothing would hold its
place among the bounded listeners for ever."""


class EventStream(Response):
    """Streams until the listener ends, the client leaves, or it takes nothing any more.

    The listener is taken off the feed in every case.
    """

    media_type = "text/event-stream"

    def __init__(self, feed: EventFeed, listener: Listener, clock: Clock) -> None:
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._feed = feed
        self._listener = listener
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 - ASGI
        """Serve one client."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_until_gone(receive))
        try:
            await asyncio.wait((sending, leaving), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._feed.leave(self._listener)
            for task in (sending, leaving):
                task.cancel()
            # Each ended by itself or was just cancelled; what it raised is looked at below.
            await asyncio.wait((sending, leaving))
        with contextlib.suppress(asyncio.CancelledError, TimeoutError):
            sending.result()

    async def _send(self, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        await send(start)
        async for frame in self._listener.frames(self._clock):
            async with self._clock.timeout(SEND_LIMIT_S * self._clock.scale):
                await send({"type": "http.response.body", "body": frame, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
