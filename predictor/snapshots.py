"""Keeps a snapshot of what was learned, and begins with the newest one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from contracts.errors import HeadstartError
from contracts.ports import Clock, EventLog, entry_order
from contracts.predictors import EngineSnapshots
from predictor.engine_snapshot import Learned, dump, load

_log = structlog.get_logger("headstart.predictor")

SNAPSHOT_S = 300.0
"""Real seconds between two. What came since is learned again at the start, within seconds."""


class Snapshots:
    """One process's side of the snapshots.

    Parameters
    ----------
    store : EngineSnapshots or None
        None: none is kept, and every start reads the whole log.
    made_with : mapping
        What a snapshot has to be made with to be used (``predictor.library_versions``).
    """

    def __init__(
        self, store: EngineSnapshots | None, clock: Clock, made_with: Mapping[str, str]
    ) -> None:
        self._store = store
        self._clock = clock
        self._made_with = made_with
        self._writing: asyncio.Task[None] | None = None
        self._away = False
        self._due_s = float("inf")

    async def newest(self, events: EventLog) -> Learned | None:
        """What to go on from; None: there is nothing that fits, the log is to be read."""
        if self._store is None:
            return None
        try:
            found = await self._store.read(lambda file: load(file, self._made_with))
        except HeadstartError as error:
            _log.warning("predictor_snapshot_refused", reason=str(error))
            return None
        if found is None or not await _is_of(events, found.place):
            return None
        _log.info("predictor_snapshot_taken", place=found.place, models=len(found.engine.models))
        return found

    def begin(self, *, at_once: bool) -> None:
        """From now on they are written; ``at_once``: the first is worth a lot."""
        wait_s = 0.0 if at_once else SNAPSHOT_S * self._clock.scale
        self._due_s = self._clock.monotonic_s() + wait_s

    async def keep(self, learned: Callable[[], Learned]) -> None:
        """Write one when it is time; the slow part goes on beside the caller."""
        now_s = self._clock.monotonic_s()
        if self._store is None or now_s < self._due_s:
            return
        if self._writing is not None and not self._writing.done():
            return
        self._due_s = now_s + SNAPSHOT_S * self._clock.scale
        self._writing = asyncio.create_task(self._write(self._store, learned))
        self._writing.add_done_callback(_tell_of_a_bug)

    async def close(self) -> None:
        """Give up one that is being written."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)

    async def _write(self, store: EngineSnapshots, learned: Callable[[], Learned]) -> None:
        try:
            is_written = await store.write(lambda file: dump(learned(), self._made_with, file))
        except HeadstartError as error:
            if not self._away:
                _log.warning("predictor_snapshot_not_written", error=str(error))
            self._away = True
            return
        if self._away:
            _log.info("predictor_snapshot_written_again")
        self._away = False
        if is_written:
            _log.debug("predictor_snapshot_written")


def _tell_of_a_bug(writing: asyncio.Task[None]) -> None:
    """Forecasts go on without a snapshot; the next one is tried when it is due."""
    error = None if writing.cancelled() else writing.exception()
    if error is not None:
        _log.error("predictor_snapshot_failed", exc_info=error)


async def _is_of(events: EventLog, place: str) -> bool:
    """Whether the log goes on from ``place``: else it was emptied, or has forgotten too much."""
    first = await events.read_after("0", count=1)
    if not first:
        return False
    begins, ends = entry_order(first[0].entry_id), entry_order(await events.last_id())
    return begins <= entry_order(place) <= ends
