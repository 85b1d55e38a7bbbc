"""What the controller writes: in order, from a bounded buffer, so that an outage stops nothing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from contracts.errors import Transient
from contracts.ports import Clock

_log = structlog.get_logger("headstart.controller")

MAX_WAITING = 10_000
RETRY_S = 0.5

Send = Callable[[], Awaitable[None]]


class Outbox:
    """Sends one after the other. At ``MAX_WAITING`` the oldest is dropped and counted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[Send] = deque()
        self._added = asyncio.Event()
        self.dropped = 0

    def add(self, send: Send) -> None:
        """Have ``send`` awaited soon; again and again while it raises Transient."""
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.dropped += 1
        self._waiting.append(send)
        self._added.set()

    async def run(self) -> None:
        """Send until cancelled."""
        failing = False
        while True:
            if not self._waiting:
                self._added.clear()
                await self._added.wait()
            send = self._waiting.popleft()
            try:
                await send()
            except Transient as error:
                if not failing:
                    _log.warning("outbox_stalled", error=str(error))
                failing = True
                self._put_back(send)
                await self._clock.sleep(RETRY_S)
            else:
                if failing:
                    _log.info("outbox_recovered", waiting=len(self._waiting), dropped=self.dropped)
                failing = False

    async def flush(self) -> None:
        """Send what waits; stops at the first that cannot be sent."""
        while self._waiting:
            send = self._waiting.popleft()
            try:
                await send()
            except Transient as error:
                self._put_back(send)
                _log.warning("outbox_not_flushed", error=str(error), waiting=len(self._waiting))
                return

    def _put_back(self, send: Send) -> None:
        if len(self._waiting) < MAX_WAITING:
            self._waiting.appendleft(send)
        else:
            self.dropped += 1
