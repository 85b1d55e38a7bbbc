"""Events of a gateway: a bounded buffer that never makes a request wait."""

from __future__ import annotations

import asyncio
import itertools
from collections import deque
from typing import TypedDict

from api.gateway.faults import Fault
from contracts.errors import HeadstartError
from contracts.events import AnyEvent
from contracts.ports import Clock, EventLog

CAPACITY = 10_000
BATCH = 500
FLUSH_S = 0.05
_MIN_REAL_FLUSH_S = 0.005
_RETRY_REAL_S = 0.5


class Stamp(TypedDict):
    """The fields that every event has."""

    event_id: str
    at_s: float
    source: str


class Telemetry:
    """Takes events at once and writes them in batches in the background.

    While the log is away events are kept up to ``capacity``; then the oldest go, and are
    counted. Without a log (no Redis) nothing is kept at all.

    Attributes
    ----------
    source : str
        Who writes them.
    written, dropped : int
        Events so far.
    """

    def __init__(
        self, log: EventLog | None, clock: Clock, source: str, *, capacity: int = CAPACITY
    ) -> None:
        self.source = source
        self.written = 0
        self.dropped = 0
        self._log = log
        self._clock = clock
        self._capacity = capacity
        self._numbers = itertools.count()
        self._buffer: deque[AnyEvent] = deque()
        self._some = asyncio.Event()
        self._many = asyncio.Event()
        self._fault = Fault("telemetry_not_written")

    def stamp(self) -> Stamp:
        """Those of an event of now."""
        return {
            "event_id": self.next_id(),
            "at_s": self._clock.now_s(),
            "source": self.source,
        }

    def next_id(self) -> str:
        """The id of an event: unique, since ``source`` is new in each process."""
        return f"{self.source}-{next(self._numbers)}"

    @property
    def pending(self) -> int:
        """Events that are not written yet."""
        return len(self._buffer)

    def emit(self, event: AnyEvent) -> None:
        """Take an event; returns at once."""
        if self._log is None:
            return
        buffer = self._buffer
        buffer.append(event)
        count = len(buffer)
        # Only the first of a batch and one that fills it wake anybody.
        if count == 1:
            self._some.set()
        elif count >= BATCH:
            self._many.set()
        if count > self._capacity:
            self._trim()

    async def run(self) -> None:
        """Write until cancelled: every 50 ms of the clock, or as soon as a batch is full."""
        interval_s = max(FLUSH_S, _MIN_REAL_FLUSH_S * self._clock.scale)
        while True:
            await self._some.wait()
            try:
                async with self._clock.timeout(interval_s):
                    await self._many.wait()
            except TimeoutError:
                pass
            if not await self._flush():
                await self._clock.sleep(_RETRY_REAL_S * self._clock.scale)

    async def close(self) -> None:
        """Write what is left, once."""
        while self._buffer and await self._flush():
            pass

    async def _flush(self) -> bool:
        """Write one batch; False when it was not written (it is kept, at the bound's cost)."""
        if self._log is None:
            return False
        batch = [self._buffer.popleft() for _ in range(min(BATCH, len(self._buffer)))]
        try:
            await self._log.append(tuple(batch))
        except HeadstartError as error:
            self._fault.begin(error)
            self._put_back(batch)
            return False
        except asyncio.CancelledError:
            self._put_back(batch)
            raise
        self.written += len(batch)
        self._fault.end(dropped=self.dropped)
        self._mark()
        return True

    def _put_back(self, batch: list[AnyEvent]) -> None:
        self._buffer.extendleft(reversed(batch))
        self._trim()
        self._mark()

    def _mark(self) -> None:
        if not self._buffer:
            self._some.clear()
        if len(self._buffer) < BATCH:
            self._many.clear()

    def _trim(self) -> None:
        while len(self._buffer) > self._capacity:
            self._buffer.popleft()
            self.dropped += 1
