"""Server-sent events: one feed, many bounded listeners."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterable

from contracts.ports import Clock

HEARTBEAT_S = 15.0
"""Real seconds between comments on a quiet stream: shorter than what proxies allow."""

Draft = tuple[str, object]
"""An event's name and its data."""


class FeedFull(Exception):
    """As many listeners as allowed are there already."""


class EventFeed:
    """Sends each event to all who listen, and keeps the last few for those who come back.

    Parameters
    ----------
    boot : str
        Marks this process's ids, so that those of an earlier one are not taken for ours.
    max_listeners, max_backlog : int
        Listeners at once, and events that one may lag behind before it is let go.
    max_kept : int
        Remembered events that are repeated to a listener that reconnects.
    """

    def __init__(
        self, *, boot: str, max_listeners: int = 64, max_backlog: int = 256, max_kept: int = 500
    ) -> None:
        self._boot = boot
        self._max_listeners = max_listeners
        self._max_backlog = max_backlog
        self._kept: deque[tuple[int, bytes]] = deque(maxlen=max_kept)
        self._listeners: set[Listener] = set()
        self._sequence = 0
        self._closed = False
        self.dropped = 0
        self.refused = 0

    @property
    def listeners(self) -> int:
        """Who listens now."""
        return len(self._listeners)

    def publish(self, kind: str, data: object, *, keep: bool = False) -> None:
        """Send one event. ``keep``: repeat it to those who missed it."""
        self._sequence += 1
        frame = self._frame(kind, data, self._sequence)
        if keep:
            self._kept.append((self._sequence, frame))
        for listener in self._listeners:
            # One that lags keeps its place until its connection has ended: the bound is on those.
            if not listener.ended and not listener.offer(frame):
                self.dropped += 1

    def listen(self, *, last_event_id: str | None, opening: Iterable[Draft]) -> Listener:
        """A new listener that first gets ``opening``, then what it missed, then all that comes.

        Raises
        ------
        FeedFull
        """
        if self._closed or len(self._listeners) >= self._max_listeners:
            self.refused += 1
            raise FeedFull
        listener = Listener(self._max_backlog)
        # The opening carries the present id: who reconnects after it has missed nothing before.
        listener.begin([self._frame(kind, data, self._sequence) for kind, data in opening])
        listener.begin(self._missed(last_event_id))
        self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        """The listener is gone."""
        self._listeners.discard(listener)

    def close(self) -> None:
        """End all streams and take no more, so that the server can stop."""
        self._closed = True
        for listener in self._listeners:
            listener.end()

    def _missed(self, last_event_id: str | None) -> list[bytes]:
        boot, _, number = (last_event_id or "").rpartition("-")
        if boot != self._boot or not number.isdecimal():
            return []
        return [frame for sequence, frame in self._kept if sequence > int(number)]

    def _frame(self, kind: str, data: object, sequence: int) -> bytes:
        # JSON has no raw line breaks, so one data line always holds it.
        text = json.dumps(data, separators=(",", ":"), allow_nan=False)
        return f"id: {self._boot}-{sequence}\nevent: {kind}\ndata: {text}\n\n".encode()


class Listener:
    """One open stream. Ended when it lags too far behind: its client connects again."""

    def __init__(self, max_backlog: int) -> None:
        self._max_backlog = max_backlog
        self._frames: deque[bytes] = deque()
        self._more = asyncio.Event()
        self.ended = False

    def begin(self, frames: list[bytes]) -> None:
        """What it gets first; does not count as lagging."""
        self._frames.extend(frames)
        self._more.set()

    def offer(self, frame: bytes) -> bool:
        """Queue one frame. False: it lags too far behind and its stream ends."""
        if len(self._frames) >= self._max_backlog:
            self.end()
            return False
        self._frames.append(frame)
        self._more.set()
        return True

    def end(self) -> None:
        """Let the stream end after what is queued."""
        self.ended = True
        self._more.set()

    async def frames(self, clock: Clock) -> AsyncIterator[bytes]:
        """What to send, with a comment when nothing happened for a while."""
        yield b": headstart\nretry: 2000\n\n"
        while True:
            while self._frames:
                yield self._frames.popleft()
            if self.ended:
                return
            self._more.clear()
            try:
                async with clock.timeout(HEARTBEAT_S * clock.scale):
                    await self._more.wait()
            except TimeoutError:
                yield b": still here\n\n"
