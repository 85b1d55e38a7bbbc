"""Reading a mailbox or log for as long as a process lives, whatever happens to the server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol, TypeVar

import structlog

from contracts.errors import Transient
from contracts.events import AnyEvent
from contracts.ports import Clock, EventLog

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


async def backlog(
    log: EventLog, place: Callable[[], str]
) -> AsyncIterator[tuple[tuple[str, AnyEvent], ...]]:
    """What the log holds already after ``place``, which moves on with what was handed out."""
    while entries := await log.read_after(place(), count=AT_ONCE):
        yield tuple((entry.entry_id, entry.value) for entry in entries)


async def follow_log(
    log: EventLog,
    handle: Callable[[tuple[tuple[str, AnyEvent], ...]], None],
    clock: Clock,
    *,
    after: str,
) -> None:
    """``follow`` for the event log: hand on entries with their ids, not too many at once."""

    async def receive(
        after: str, *, block_s: float
    ) -> tuple[str, tuple[tuple[str, AnyEvent], ...]]:
        entries = await log.read_after(after, count=AT_ONCE, block_s=block_s)
        place = entries[-1].entry_id if entries else after
        return place, tuple((entry.entry_id, entry.value) for entry in entries)

    await follow("events", receive, handle, clock, after=after)


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
