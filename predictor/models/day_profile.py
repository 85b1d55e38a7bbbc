"""How much comes at each time of day: a mean over past days, calmer than yesterday alone."""

from __future__ import annotations

import math

import numpy as np

from predictor.windows import CountWindow, Floats, Rows

SLOT_S = 900.0
SLOTS = 96
_MEMORY_DAYS = 7.0
"""Older days fade: a week is remembered, a change of habit is followed within days."""
_CATCH_UP = 4
"""Slots that are still looked at when several have ended since the last time."""


class DayProfile:
    """Mean arrivals per slot of the day for each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._totals = np.zeros((rows, SLOTS))
        self._days = np.zeros((rows, SLOTS))
        self._slot: int | None = None
        self._means: Floats | None = None

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._days)
        self._totals = np.pad(self._totals, ((0, more), (0, 0)))
        self._days = np.pad(self._days, ((0, more), (0, 0)))
        self._means = None

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._totals[row] = self._days[row] = 0.0
        self._means = None

    def rewind(self) -> None:
        """The clock was set back: the next look only finds out where it stands."""
        self._slot = None

    def advance(self, recent: CountWindow, rows: Rows, now_s: float) -> None:
        """Learn the slots that have ended by ``now_s``, as far as they were watched."""
        slot = math.floor(now_s / SLOT_S)
        if self._slot is None or slot < self._slot:
            self._slot = slot
        fade = 1.0 - 1.0 / _MEMORY_DAYS
        for ended in range(max(self._slot, slot - _CATCH_UP), slot):
            counts = recent.totals(rows, (ended + 1) * SLOT_S, SLOT_S)
            known, place = np.isfinite(counts), ended % SLOTS
            seen = rows[known]
            self._totals[seen, place] = fade * self._totals[seen, place] + counts[known]
            self._days[seen, place] = fade * self._days[seen, place] + 1.0
            self._means = None
        self._slot = slot

    def expected(self, rows: Rows, now_s: float, delays_s: Floats) -> Floats:
        """Arrivals within each delay of at most a day by the mean of past days.

        Returns
        -------
        (n, delays) array, not a number where a part of that time of day was never seen.
        """
        if self._means is None:
            means = np.where(self._days > 0.0, self._totals / np.maximum(self._days, 1e-9), np.nan)
            self._means = np.concatenate([means, means], axis=1)
        place = (now_s / SLOT_S) % SLOTS
        found = np.empty((len(rows), len(delays_s)))
        for column, delay_s in enumerate(delays_s.tolist()):
            slots = np.arange(math.floor(place), math.ceil(place + delay_s / SLOT_S))
            covered = np.minimum(slots + 1.0, place + delay_s / SLOT_S) - np.maximum(slots, place)
            found[:, column] = self._means[np.ix_(rows, slots)] @ covered
        return found
