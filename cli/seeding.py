"""Putting a history into an event log, before anything reads it."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.ids import ModelId
from contracts.ports import EventLog
from simulator.history import history_events

BATCH = 1000


async def seed(log: EventLog, requests: Iterable[tuple[float, ModelId, float, str]]) -> None:
    """Append (time, model, service time, client) as requests that came and ended."""
    events = history_events(requests)
    for start in range(0, len(events), BATCH):
        await log.append(events[start : start + BATCH])
