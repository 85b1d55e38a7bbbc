"""Keeps the rings of past counts, and tells them again to an engine that knows nothing yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from contracts.events import AnyEvent, RequestCompleted, RequestReceived
from contracts.history import HistoryPage, HistoryStore
from contracts.ids import ModelId
from contracts.ports import Entry, EventLog, entry_order
from predictor.engine import PredictorEngine
from predictor.history import HistoryBook, retold

_log = structlog.get_logger("headstart.predictor")

BEGINNING = "0"
_MOST_MODELS = 5_000
"""Models whose rings are read at the start."""
_MODELS_AT_ONCE = 50
"""Read between two looks whether somebody writes the rings at the same time."""

PassTime = Callable[[float], Awaitable[None]]


class HistoryKeeper:
    """Between the event log and the rings.

    The rings say how far the log is in them, and both are written in one step. So a keeper that
    was killed loses nothing that the log still holds, and counts nothing twice. One that stands
    by counts the same, and writes nothing.

    Parameters
    ----------
    store : HistoryStore
    engine : PredictorEngine
    flush_s : float
        How often the rings are written.
    """

    def __init__(self, store: HistoryStore, engine: PredictorEngine, *, flush_s: float) -> None:
        self._store = store
        self._engine = engine
        self._flush_s = flush_s
        self._book = HistoryBook()
        self._counted = BEGINNING
        self._counted_of: dict[ModelId, str] = {}
        self._counted_until = entry_order(BEGINNING)
        self._written = BEGINNING
        self._mark: tuple[str, int] = (BEGINNING, 0)
        self._flushed_at_s = float("-inf")
        self._is_told = False

    async def retell(self, events: EventLog, now_s: float, pass_time: PassTime) -> None:
        """Tell the engine what the rings hold of the time before the log, and where they end.

        Once: where the log is empty a predictor is at its beginning as often as it catches up.
        """
        if self._is_told:
            return
        first = await events.read_after(BEGINNING, count=1)
        before_s = first[0].value.at_s if first else now_s
        pages = await self._read_all()
        self._is_told = True
        told = retold(pages, before_s=before_s)
        for event in told:
            await pass_time(event.at_s)
            self._engine.observe(event)
        _log.info("predictor_history_told", requests=len(told), models=len(pages))

    @property
    def book(self) -> HistoryBook:
        """What was counted, up to the last entry noted."""
        return self._book

    def go_on_from(self, book: HistoryBook) -> None:
        """Have ``book`` for all that came before the next entry; the rings need not be read."""
        self._book = book

    def note(self, entry: Entry[AnyEvent]) -> None:
        """Count an event of the log that is not in the rings; the engine has observed it."""
        if not self._is_counted(entry):
            event = entry.value
            known = isinstance(event, RequestReceived) and self._engine.knows(event.model)
            self._book.observe(event, known=known)

    def forget(self, models: tuple[ModelId, ...]) -> None:
        """The engine has forgotten these."""
        for model in models:
            self._book.drop(model)

    async def take_over(self, token: int | None) -> None:
        """Be the one who writes from now on: whoever did before is fenced off."""
        await self._store.remove((), token=token)
        self._written = await self._store.place() or BEGINNING

    async def drop(self, models: tuple[ModelId, ...], *, token: int | None = None) -> None:
        """The engine has forgotten these, and so do the rings."""
        self.forget(models)
        await self._store.remove(models, token=token)

    async def flush(self, place: str, now_s: float, *, token: int | None = None) -> None:
        """Write what was counted up to ``place``, when it is time."""
        if 0.0 <= now_s - self._flushed_at_s < self._flush_s:
            return
        if entry_order(place) < entry_order(self._written):
            return  # the log is read anew, and its end is in the rings already
        pages, changes = self._book.pages(), self._book.changes
        await self._store.write(pages, place=place, token=token)
        self._book.flushed(changes)
        self._written, self._flushed_at_s = place, now_s

    async def follow(self, place: str, now_s: float) -> None:
        """Let go of what the owner has written; the book is as it would write it from ``place``."""
        if 0.0 <= now_s - self._flushed_at_s < self._flush_s:
            return
        self._flushed_at_s = now_s
        written = await self._store.place() or BEGINNING
        marked, changes = self._mark
        if entry_order(marked) <= entry_order(written):
            self._book.flushed(changes)
            self._mark = (place, self._book.changes)

    async def _read_all(self) -> dict[ModelId, tuple[HistoryPage, ...]]:
        """All rings, each as of one place in the log, also while the owner goes on writing."""
        place = self._counted = self._written = await self._store.place() or BEGINNING
        found: dict[ModelId, tuple[HistoryPage, ...]] = {}
        models = (await self._store.models())[:_MOST_MODELS]
        read, at_once = 0, _MODELS_AT_ONCE
        while read < len(models):
            some, before = models[read : read + at_once], place
            pages = {model: await self._store.read(model) for model in some}
            place = await self._store.place() or BEGINNING
            if place != before:
                at_once = max(1, at_once // 2)  # the owner writes faster than these are read
                continue
            found |= pages
            self._counted_of |= dict.fromkeys(some, place)
            read += len(some)
        for page in (page for pages_of_one in found.values() for page in pages_of_one):
            self._book.restore(page)
        places = {self._counted, *self._counted_of.values()}
        self._counted_until = max(entry_order(each) for each in places)
        return found

    def _is_counted(self, entry: Entry[AnyEvent]) -> bool:
        """Whether the rings, as they were read, hold this event already."""
        event, order = entry.value, entry_order(entry.entry_id)
        if order > self._counted_until or not isinstance(event, RequestReceived | RequestCompleted):
            return False
        place = self._counted if event.model is None else self._counted_of.get(event.model)
        return order <= entry_order(self._counted if place is None else place)
