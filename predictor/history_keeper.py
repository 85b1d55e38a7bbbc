"""Keeps the rings of past counts, and tells them again to an engine that knows nothing yet."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import structlog

from contracts.events import AnyEvent, RequestReceived
from contracts.history import HistoryStore
from contracts.ids import ModelId
from contracts.ports import Entry, EventLog, entry_order
from predictor.engine import PredictorEngine
from predictor.history import HistoryBook, retold

_log = structlog.get_logger("headstart.predictor")

BEGINNING = "0"
_MOST_MODELS = 5_000
"""Models whose rings are read at the start."""

PassTime = Callable[[float], Awaitable[None]]


class HistoryKeeper:
    """Between the event log and the rings.

    The rings say how far the log is in them, and both are written in one step. So a keeper that
    was killed loses nothing that the log still holds, and counts nothing twice.

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
        self._flushed_at_s = float("-inf")

    async def retell(self, events: EventLog, now_s: float, pass_time: PassTime) -> None:
        """Tell the engine what the rings hold of the time before the log, and where they end."""
        self._counted = await self._store.place() or BEGINNING
        first = await events.read_after(BEGINNING, count=1)
        before_s = first[0].value.at_s if first else now_s
        pages = {}
        for model in (await self._store.models())[:_MOST_MODELS]:
            pages[model] = await self._store.read(model)
            for page in pages[model]:
                self._book.restore(page)
        told = retold(pages, before_s=before_s)
        for event in told:
            await pass_time(event.at_s)
            self._engine.observe(event)
        _log.info("predictor_history_told", requests=len(told), models=len(pages))

    def note(self, entry: Entry[AnyEvent]) -> None:
        """Count an event of the log that is not in the rings; the engine has observed it."""
        if entry_order(entry.entry_id) > entry_order(self._counted):
            event = entry.value
            known = isinstance(event, RequestReceived) and self._engine.knows(event.model)
            self._book.observe(event, known=known)

    async def drop(self, models: tuple[ModelId, ...]) -> None:
        """The engine has forgotten these."""
        for model in models:
            self._book.drop(model)
        await self._store.remove(models)

    async def flush(self, place: str, now_s: float) -> None:
        """Write what was counted up to ``place``, when it is time."""
        if 0.0 <= now_s - self._flushed_at_s < self._flush_s:
            return
        if entry_order(place) < entry_order(self._counted):
            return  # the log is read anew, and its end is in the rings already
        await self._store.write(self._book.pages(), place=place)
        self._book.flushed()
        self._counted, self._flushed_at_s = place, now_s
