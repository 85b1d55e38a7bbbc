"""Which events were told before: a log may tell of one twice. Pure."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator

from contracts.events import AnyEvent

KNOWN_IDS = 65_536
"""Ids that are remembered: minutes of a busy gateway's traffic. What comes again later counts."""


class SeenEvents:
    """Remembers the newest ids, and no more than ``KNOWN_IDS``."""

    def __init__(self) -> None:
        self._ids: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, event_id: str) -> bool:
        return event_id in self._ids

    def add(self, event_id: str) -> None:
        """It was told."""
        self._ids[event_id] = None
        if len(self._ids) > KNOWN_IDS:
            self._ids.popitem(last=False)

    def fresh(self, events: Iterable[AnyEvent]) -> Iterator[AnyEvent]:
        """Those of ``events`` that were not told before; they are, from now on."""
        for event in events:
            if event.event_id not in self._ids:
                self.add(event.event_id)
                yield event
