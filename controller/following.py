"""Reading a mailbox or log for as long as a process lives, whatever happens to the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import structlog

from contracts.errors import Transient
from contracts.ports import Clock

_log = structlog.get_logger("headstart.controller")

RETRY_S = 0.5
BLOCK_S = 1.0

ItemT = TypeVar("ItemT", covariant=True)


class Receive(Protocol[ItemT]):
    """``Mailbox.receive`` and what is shaped like it."""

    async def __call__(self, after: str, *, block_s: float) -> tuple[str, tuple[ItemT, ...]]:
        """What came after ``after``, and the new place."""
        ...


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
