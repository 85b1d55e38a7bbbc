"""An event log that is told of machines at every poll and keeps that now and then.

A reading of several cards is longer than all else that is logged together. Whoever needs each
one has it from the published world; figures over time need a few in a minute.
"""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from dataclasses import replace

from contracts.events import AnyEvent, NodeObserved
from contracts.ids import NodeId
from contracts.ports import Entry, EventLog

EVERY_S = 15.0
MAX_NODES = 1000


class ThinEventLog:
    """``EventLog`` over another one: of each node a reading every ``every_s``."""

    def __init__(self, log: EventLog, *, every_s: float = EVERY_S) -> None:
        self._log = log
        self._every_s = every_s
        self._kept_at_s: dict[NodeId, float] = {}

    async def append(self, events: tuple[AnyEvent, ...]) -> None:
        kept = dict(self._kept_at_s)
        thin = tuple(self._thin(event, kept) for event in events)
        await self._log.append(thin)
        self._kept_at_s = kept  # only now: what was not written is to be written again

    async def read_after(
        self, entry_id: str, *, count: int, block_s: float = 0.0
    ) -> tuple[Entry[AnyEvent], ...]:
        return await self._log.read_after(entry_id, count=count, block_s=block_s)

    async def last_id(self) -> str:
        return await self._log.last_id()

    @property
    def skipped(self) -> int:
        """Records that could not be read, so far, in this process."""
        return self._log.skipped

    def _thin(self, event: AnyEvent, kept: dict[NodeId, float]) -> AnyEvent:
        if not isinstance(event, NodeObserved) or event.reading is None:
            return event
        last_s = kept.get(event.node)
        if last_s is not None and 0.0 <= event.at_s - last_s < self._every_s:
            return replace(event, reading=None)
        if event.node not in kept and len(kept) >= MAX_NODES:
            kept.pop(next(iter(kept)))
        kept[event.node] = event.at_s
        return event
