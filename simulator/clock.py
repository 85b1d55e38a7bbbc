"""A clock whose time passes only when it is told to."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import TypeVar

T = TypeVar("T")

_MAX_ROUNDS = 10_000


class VirtualClock:
    """A ``contracts.ports.Clock`` for tests and simulations.

    Sleepers and timeouts are woken in the order of their deadlines, and between two of them
    every task runs until it waits again, so that what happens depends on virtual time alone.
    Two clocks with the same calls give the same order of events.

    Parameters
    ----------
    start_s : float
        Epoch seconds at the beginning. ``monotonic_s`` starts at 0.
    """

    def __init__(self, start_s: float = 0.0) -> None:
        self._epoch_s = start_s
        self._elapsed_s = 0.0
        self._order = itertools.count()
        self._alarms: list[tuple[float, int, asyncio.Future[None]]] = []

    @property
    def scale(self) -> float:
        """Always 1: nothing here is tied to real time."""
        return 1.0

    def now_s(self) -> float:
        """Epoch seconds."""
        return self._epoch_s + self._elapsed_s

    def monotonic_s(self) -> float:
        """Seconds since this clock was made."""
        return self._elapsed_s

    async def sleep(self, duration_s: float) -> None:
        """Wait until ``advance`` has passed ``duration_s``; zero or less lets others run once."""
        if duration_s <= 0.0:
            await _let_others_run()
            return
        alarm = self._set_alarm(duration_s)
        try:
            await alarm
        finally:
            alarm.cancel()

    @asynccontextmanager
    async def timeout(self, duration_s: float) -> AsyncIterator[asyncio.Timeout]:
        """A block that raises TimeoutError once ``advance`` has passed ``duration_s``."""
        limit = asyncio.timeout(None)  # noqa: TID251 - its deadline is set by this clock

        def expire(alarm: asyncio.Future[None]) -> None:
            if not alarm.cancelled():
                limit.reschedule(asyncio.get_running_loop().time())

        alarm = self._set_alarm(max(0.0, duration_s))
        try:
            async with limit:
                if duration_s <= 0.0:
                    alarm.cancel()
                    limit.reschedule(asyncio.get_running_loop().time())
                else:
                    alarm.add_done_callback(expire)
                try:
                    yield limit
                finally:
                    alarm.remove_done_callback(expire)
        finally:
            alarm.cancel()

    @property
    def next_alarm_in_s(self) -> float | None:
        """Seconds until the next sleeper or timeout is due; None while nothing waits."""
        while self._alarms and self._alarms[0][2].done():
            heapq.heappop(self._alarms)
        return self._alarms[0][0] - self._elapsed_s if self._alarms else None

    async def advance(self, duration_s: float) -> None:
        """Let ``duration_s`` pass, waking whatever is due on the way, in order."""
        await settle()
        end_s = self._elapsed_s + duration_s
        while (due_in_s := self.next_alarm_in_s) is not None:
            due_s = self._elapsed_s + due_in_s
            if due_s > end_s:
                break
            self._elapsed_s, _, alarm = heapq.heappop(self._alarms)
            alarm.set_result(None)
            await settle()
        self._elapsed_s = max(end_s, self._elapsed_s)

    async def run(self, awaitable: Awaitable[T], *, limit_s: float = 86_400.0) -> T:
        """Advance from alarm to alarm until ``awaitable`` is done, and give its result.

        Raises
        ------
        TimeoutError
            Not done after ``limit_s`` virtual seconds, or when nothing is left to wait for.
        """
        task = asyncio.ensure_future(awaitable)
        end_s = self._elapsed_s + limit_s
        await settle()
        try:
            while not task.done():
                step_s = self.next_alarm_in_s
                if step_s is None or self._elapsed_s + step_s > end_s:
                    raise TimeoutError(f"not done at virtual second {self._elapsed_s:g}")
                await self.advance(step_s)
            return await task
        finally:
            task.cancel()

    def _set_alarm(self, duration_s: float) -> asyncio.Future[None]:
        alarm: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._alarms, (self._elapsed_s + duration_s, next(self._order), alarm))
        return alarm


async def settle() -> None:
    """Let every task run until all of them wait for something.

    Asks the loop whether callbacks are due where it can tell; else runs a fixed number of
    rounds. Bounded, so that a task that never waits does not hang the caller.
    """
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    for _ in range(_MAX_ROUNDS if ready is not None else 100):
        await _let_others_run()
        if ready is not None and not ready:
            return


async def _let_others_run() -> None:
    await asyncio.sleep(0)  # noqa: TID251 - passes no time
