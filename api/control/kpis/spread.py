"""How values are spread: counts in buckets that grow by a fixed ratio. Bounded, and adds up."""

from __future__ import annotations

import math
from collections.abc import Iterable

RATIO = 1.12
"""Each bucket's bound over the one before: a quantile is right to six percent."""

_LEAST = 1e-4
_LOG = math.log(RATIO)
_BUCKETS = 170
"""From a tenth of a millisecond to six hours; what is more counts as the last."""


class Spread:
    """Count, sum and quantiles of values of at least 0. Two of them can be added."""

    __slots__ = ("_counts", "count", "greatest", "total")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.total = 0.0
        self.greatest = 0.0

    def add(self, value: float) -> None:
        """One more value; what is no number or below 0 is left out."""
        if not math.isfinite(value) or value < 0.0:
            return
        place = _place(value)
        self._counts[place] = self._counts.get(place, 0) + 1
        self.count += 1
        self.total += value
        self.greatest = max(self.greatest, value)

    def merge(self, other: Spread) -> None:
        """Take in all values of ``other``."""
        for place, count in other._counts.items():
            self._counts[place] = self._counts.get(place, 0) + count
        self.count += other.count
        self.total += other.total
        self.greatest = max(self.greatest, other.greatest)

    @property
    def mean(self) -> float | None:
        """None while there is no value."""
        return self.total / self.count if self.count else None

    def quantile(self, level: float) -> float | None:
        """The value that a share ``level`` of all values is not above; None: there is none."""
        if not self.count:
            return None
        rank = math.ceil(level * self.count)
        seen = 0
        for place in sorted(self._counts):
            seen += self._counts[place]
            if seen >= rank:
                return min(_middle(place), self.greatest)
        return self.greatest


def merged(spreads: Iterable[Spread]) -> Spread:
    """All values of all of them."""
    whole = Spread()
    for one in spreads:
        whole.merge(one)
    return whole


def _place(value: float) -> int:
    if value <= _LEAST:
        return 0
    return min(_BUCKETS - 1, 1 + int(math.log(value / _LEAST) / _LOG))


def _middle(place: int) -> float:
    return 0.0 if place == 0 else _LEAST * math.exp((place - 0.5) * _LOG)
