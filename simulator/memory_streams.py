# ruff: noqa: D102 - the port says what each method does
"""In-memory logs: the event log, the mailboxes and the decision journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from contracts.errors import HeadstartError
from contracts.events import AnyEvent
from contracts.plan import Decision
from contracts.ports import Clock, Entry, entry_order

T = TypeVar("T")
FoundT = TypeVar("FoundT")
MessageT = TypeVar("MessageT")

MAX_BATCH = 1000
"""The most messages that one read of a mailbox or feed gives."""


class Faulty:
    """A port that can be told to fail: while ``fault`` is set, every call raises it."""

    fault: HeadstartError | None = None

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault


class Stream(Generic[T]):
    """A bounded list of entries with growing ids, whose readers can wait for more.

    Waiting passes on ``clock`` where one is given, else in real seconds.
    """

    def __init__(self, *, max_entries: int, clock: Clock | None = None) -> None:
        self._entries: dict[int, T] = {}
        self._max_entries = max_entries
        self._last = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._clock = clock

    def add(self, value: T) -> None:
        """Append one value, let go of the oldest at the bound, and wake all who wait."""
        self._last += 1
        self._entries[self._last] = value
        self._entries.pop(self._last - self._max_entries, None)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def place(self, entry_id: str) -> int:
        """The number of an entry id; ``"$"`` is the newest entry."""
        return self._last if entry_id == "$" else entry_order(entry_id)[0]

    @property
    def last(self) -> int:
        """The newest entry's number, 0 before the first."""
        return self._last

    @property
    def numbers(self) -> range:
        """The numbers of all that is kept, oldest first."""
        return range(self._last - len(self._entries) + 1, self._last + 1)

    def at(self, numbers: Iterable[int]) -> list[tuple[int, T]]:
        """The entries with these numbers."""
        return [(number, self._entries[number]) for number in numbers]

    def after(self, place: int, count: int) -> list[tuple[int, T]]:
        """Up to ``count`` entries after ``place``, oldest first."""
        first = max(place + 1, self.numbers.start)
        return self.at(range(first, min(first + count, self._last + 1)))

    async def wait_for(self, take: Callable[[], list[FoundT]], block_s: float) -> list[FoundT]:
        """What ``take`` gives, as soon as it gives anything, or nothing after ``block_s``."""
        taken = take()
        if taken or block_s <= 0.0:
            return taken
        timeout = self._clock.timeout if self._clock else asyncio.timeout  # noqa: TID251
        try:
            async with timeout(block_s):
                while not taken:
                    await self._next()
                    taken = take()
        except TimeoutError:
            pass
        return taken

    async def _next(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)


class MemoryEventLog(Faulty):
    """``EventLog`` in memory.

    Parameters
    ----------
    max_entries : int
        The oldest go beyond this.
    """

    def __init__(self, *, clock: Clock | None = None, max_entries: int = 200_000) -> None:
        self._stream: Stream[AnyEvent | None] = Stream(max_entries=max_entries, clock=clock)
        self._unreadable: set[int] = set()

    async def append(self, events: tuple[AnyEvent, ...]) -> None:
        self._check()
        for event in events:
            self._stream.add(event)

    def append_unreadable(self) -> None:
        """Add a record that no reader understands, as a newer version would."""
        self._stream.add(None)

    async def read_after(
        self, entry_id: str, *, count: int, block_s: float = 0.0
    ) -> tuple[Entry[AnyEvent], ...]:
        self._check()
        place = self._stream.place(entry_id)

        def take() -> list[Entry[AnyEvent]]:
            return self._readable(self._stream.after(place, self._stream.last))[:count]

        return tuple(await self._stream.wait_for(take, block_s))

    async def last_id(self) -> str:
        self._check()
        return _entry_id(self._stream.last)

    @property
    def skipped(self) -> int:
        """Records that could not be read, each counted once."""
        return len(self._unreadable)

    def _readable(self, found: list[tuple[int, AnyEvent | None]]) -> list[Entry[AnyEvent]]:
        self._unreadable.update(number for number, event in found if event is None)
        return [Entry(_entry_id(number), event) for number, event in found if event is not None]


class MemoryMailbox(Faulty, Generic[MessageT]):
    """``Mailbox`` in memory."""

    def __init__(self, *, clock: Clock | None = None, max_entries: int = 10_000) -> None:
        self._stream: Stream[MessageT] = Stream(max_entries=max_entries, clock=clock)

    async def send(self, message: MessageT) -> None:
        self._check()
        self._stream.add(message)

    async def receive(self, after: str, *, block_s: float) -> tuple[str, tuple[MessageT, ...]]:
        self._check()
        place = self._stream.place(after)
        found = await self._stream.wait_for(lambda: self._stream.after(place, MAX_BATCH), block_s)
        if not found:
            return _entry_id(place), ()
        return _entry_id(found[-1][0]), tuple(message for _, message in found)


class MemoryDecisionJournal(Faulty):
    """``DecisionJournal`` in memory."""

    def __init__(self, *, clock: Clock | None = None, max_entries: int = 20_000) -> None:
        self._stream: Stream[Decision] = Stream(max_entries=max_entries, clock=clock)

    async def append(self, decisions: tuple[Decision, ...]) -> None:
        self._check()
        for decision in decisions:
            self._stream.add(decision)

    async def newest(
        self, *, limit: int, before: str | None = None, subject: str | None = None
    ) -> tuple[Entry[Decision], ...]:
        self._check()
        end = self._stream.last + 1 if before is None else self._stream.place(before)
        found = [
            Entry(_entry_id(number), decision)
            for number, decision in self._stream.at(reversed(self._stream.numbers))
            if number < end and (subject is None or decision.subject == subject)
        ]
        return tuple(found[:limit])

    async def get(self, decision_id: str) -> Decision | None:
        self._check()
        return next(
            (
                decision
                for _, decision in self._stream.at(reversed(self._stream.numbers))
                if decision_id and decision.decision_id == decision_id
            ),
            None,
        )

    async def after(self, entry_id: str, *, block_s: float) -> tuple[Entry[Decision], ...]:
        self._check()
        place = self._stream.place(entry_id)
        found = await self._stream.wait_for(lambda: self._stream.after(place, MAX_BATCH), block_s)
        return tuple(Entry(_entry_id(number), decision) for number, decision in found)


def _entry_id(number: int) -> str:
    return f"{number}-0" if number else "0"
