"""What the controller writes: in order, from a bounded buffer, so that an outage stops nothing."""

from __future__ import annotations

import asyncio
import itertools
from collections import OrderedDict
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
        self._waiting: OrderedDict[str | int, Send] = OrderedDict()
        self._numbers = itertools.count()
        self._added = asyncio.Event()
        self.dropped = 0

    def add(self, send: Send, *, latest: str | None = None) -> None:
        """Have ``send`` awaited soon; again and again while it raises Transient.

        ``latest``: it takes the place of an earlier one of that name which still waits, since
        nobody wants to hear of what is no more. Behind a slow store all else would be told
        later and later.
        """
        if latest is not None and latest in self._waiting:
            self._waiting[latest] = send
            return
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popitem(last=False)
            self.dropped += 1
        self._waiting[next(self._numbers) if latest is None else latest] = send
        self._added.set()

    async def run(self) -> None:
        """Send until cancelled."""
        failing = False
        while True:
            if not self._waiting:
                self._added.clear()
                await self._added.wait()
            name, send = self._waiting.popitem(last=False)
            try:
                await send()
            except Transient as error:
                if not failing:
                    _log.warning("outbox_stalled", error=str(error))
                failing = True
                self._put_back(name, send)
                await self._clock.sleep(RETRY_S)
            else:
                if failing:
                    _log.info("outbox_recovered", waiting=len(self._waiting), dropped=self.dropped)
                failing = False

    async def flush(self) -> None:
        """Send what waits; stops at the first that cannot be sent."""
        while self._waiting:
            name, send = self._waiting.popitem(last=False)
            try:
                await send()
            except Transient as error:
                self._put_back(name, send)
                _log.warning("outbox_not_flushed", error=str(error), waiting=len(self._waiting))
                return

    def _put_back(self, name: str | int, send: Send) -> None:
        if name in self._waiting:
            return  # there is a newer one
        if len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        self._waiting[name] = send
        self._waiting.move_to_end(name, last=False)
