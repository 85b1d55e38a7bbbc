"""Reading a mailbox or log for as long as a process lives, whatever happens to the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import structlog

from contracts.errors import Transient
from contracts.events import AnyEvent
from contracts.ports import Clock, EventLog
from contracts.seen_events import SeenEvents

_log = structlog.get_logger("headstart.controller")

RETRY_S = 0.5
BLOCK_S = 1.0
AT_ONCE = 500
"""Entries of the log between two looks at the clock: a long replay stays interruptible."""

ItemT = TypeVar("ItemT", covariant=True)


class Receive(Protocol[ItemT]):
    """``Mailbox.receive`` and what is shaped like it."""

    async def __call__(self, after: str, *, block_s: float) -> tuple[str, tuple[ItemT, ...]]:
        """What came after ``after``, and the new place."""
        ...


async def patiently(what: str, call: Callable[[], Awaitable[None]], clock: Clock) -> None:
    """Call until it is not put off any more; ``what`` is the line that says so."""
    while True:
        try:
            return await call()
        except Transient as error:
            _log.warning(what, error=str(error))
            await clock.sleep(RETRY_S)


@dataclass(frozen=True, slots=True)
class Heard:
    """What the log said at once: its events, each told once, and the place behind them."""

    place: str
    events: tuple[AnyEvent, ...]


class LogFollower:
    """Reads the event log on and on; what it tells twice is handed out once."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._seen = SeenEvents()

    async def backlog(self, place: Callable[[], str]) -> AsyncIterator[Heard]:
        """What is there already after ``place``, which moves on with what was handed out."""
        while heard := await self._read(place(), block_s=0.0):
            yield heard

    async def follow(self, handle: Callable[[Heard], None], *, after: str) -> None:
        """Hand on what comes, not too much at once, until cancelled. Outages are waited out."""

        async def receive(after: str, *, block_s: float) -> tuple[str, tuple[Heard, ...]]:
            heard = await self._read(after, block_s=block_s)
            return (after, ()) if heard is None else (heard.place, (heard,))

        def hand_on(found: tuple[Heard, ...]) -> None:
            for heard in found:
                handle(heard)

        await follow("events", receive, hand_on, self._clock, after=after)

    async def _read(self, after: str, *, block_s: float) -> Heard | None:
        entries = await self._log.read_after(after, count=AT_ONCE, block_s=block_s)
        if not entries:
            return None
        events = tuple(self._seen.fresh(entry.value for entry in entries))
        return Heard(entries[-1].entry_id, events)


async def follow(
    what: str,
    receive: Receive[ItemT],
    handle: Callable[[tuple[ItemT, ...]], None],
    clock: Clock,
    *,
    after: str = "$",
) -> None:
    """Hand on what comes after ``after``, until cancelled. Outages are waited out.

    One line is logged when a fault begins and one when it ends.
    """
    failing = False
    while True:
        try:
            after, items = await receive(after, block_s=BLOCK_S)
        except Transient as error:
            if not failing:
                _log.warning("reading_stalled", what=what, error=str(error))
            failing = True
            await clock.sleep(RETRY_S)
            continue
        if failing:
            _log.info("reading_recovered", what=what)
        failing = False
        if items:
            handle(items)
