"""Which events count: not the doubled ones, nor those from a clock gone mad."""

from __future__ import annotations

import math

from contracts.events import AnyEvent
from contracts.seen_events import SeenEvents

_JUMP_S = 86_400.0
"""A lone event more than a day ahead of all others is a wrong clock; two in a row are time."""


class EventFilter:
    """Keeps what it has seen, within bounds."""

    def __init__(self) -> None:
        self._seen = SeenEvents()
        self._newest_s = -math.inf
        self._ahead_s: float | None = None

    def admits(self, event: AnyEvent) -> bool:
        """Whether ``event`` is new and its time can be true."""
        if event.event_id in self._seen or not self._is_possible(event.at_s):
            return False
        self._seen.add(event.event_id)
        return True

    def rewind(self, now_s: float) -> None:
        """The clock was set back to ``now_s``."""
        self._newest_s = min(self._newest_s, now_s)
        self._ahead_s = None

    def _is_possible(self, at_s: float) -> bool:
        if not math.isfinite(at_s) or at_s < 0.0:
            return False
        if at_s <= self._newest_s + _JUMP_S or self._newest_s == -math.inf:
            self._newest_s = max(self._newest_s, at_s)
            self._ahead_s = None
            return True
        if self._ahead_s is not None and abs(at_s - self._ahead_s) <= _JUMP_S:
            self._newest_s = at_s
            self._ahead_s = None
            return True
        self._ahead_s = at_s
        return False
