"""Long timeouts that cost little: they share timers, and end up to a quarter of a second late.

``asyncio.timeout`` makes a timer of its own each time, 3.6 µs, and a gateway begins several of
many minutes for each request that takes a millisecond. Here all timeouts that end in the same
quarter of a second hang on one timer: 1 µs.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

LONG_REAL_S = 10.0
"""From here on a timeout may share a timer."""

_SLOTS_PER_S = 4


class SharedTimeouts:
    """The timeouts of one event loop, by the quarter of a second in which they end."""

    __slots__ = ("_loop", "_slots")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._slots: dict[int, set[SharedTimeout]] = {}

    @property
    def pending(self) -> int:
        """Timeouts that run."""
        return sum(map(len, self._slots.values()))

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop that they are for."""
        return self._loop

    def add(self, timeout: SharedTimeout, duration_s: float) -> set[SharedTimeout]:
        """Have it end not before ``duration_s`` have passed; gives where it hangs."""
        slot = int((self._loop.time() + duration_s) * _SLOTS_PER_S) + 1
        found = self._slots.get(slot)
        if found is None:
            found = self._slots[slot] = set()
            self._loop.call_at(slot / _SLOTS_PER_S, self._end, slot)
        found.add(timeout)
        return found

    def _end(self, slot: int) -> None:
        for timeout in self._slots.pop(slot):
            timeout.expire()


class SharedTimeout:
    """A block that raises TimeoutError when it takes too long; as ``asyncio.timeout`` does.

    Used once, in one task.
    """

    __slots__ = ("_cancelling", "_duration_s", "_has_expired", "_place", "_task", "_timeouts")

    def __init__(self, timeouts: SharedTimeouts, duration_s: float) -> None:
        self._timeouts = timeouts
        self._duration_s = duration_s
        self._has_expired = False

    async def __aenter__(self) -> SharedTimeout:
        task = asyncio.current_task(self._timeouts.loop)
        if task is None:
            raise RuntimeError("a timeout is for what runs in a task")
        self._task = task
        self._cancelling = task.cancelling()
        self._place = self._timeouts.add(self, self._duration_s)
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if not self._has_expired:
            self._place.discard(self)
        elif self._task.uncancel() <= self._cancelling and exc_type is asyncio.CancelledError:
            # Cancelled by us and by nobody else.
            raise TimeoutError from exc

    def expire(self) -> None:
        """Its time is over."""
        self._has_expired = True
        self._task.cancel()
