"""How much comes in each slot of a cycle: a mean over past days, or over past hours.

The day is for people, calmer than yesterday alone. The hour is for jobs: whatever comes each 5,
15 or 60 minutes comes in the same minutes of every hour.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from predictor.windows import CountWindow, Floats, Rows


@dataclass(frozen=True, slots=True)
class Cycle:
    """How time is cut into slots that come again.

    Attributes
    ----------
    memory : float
        Cycles after which what was seen has faded to a third.
    imagined : float
        Visits of a slot that the model's plain rate counts as.
    """

    slot_s: float
    slots: int
    memory: float
    imagined: float


DAY = Cycle(slot_s=900.0, slots=96, memory=7.0, imagined=1.0)
"""A week is remembered, a change of habit is followed within days."""
HOUR = Cycle(slot_s=60.0, slots=60, memory=24.0, imagined=2.0)
"""A job that moved is unlearned within a day."""
_CATCH_UP_S = 3600.0
"""Of time that has passed unlooked at, this much is still learned."""


class SlotProfile:
    """Mean arrivals per slot for each row.

    Parameters
    ----------
    cycle : Cycle
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, cycle: Cycle, rows: int) -> None:
        self._cycle = cycle
        self._totals = np.zeros((rows, cycle.slots))
        self._visits = np.zeros((rows, cycle.slots))
        self._slot: int | None = None
        self._shift = 0

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._visits)
        self._totals = np.pad(self._totals, ((0, more), (0, 0)))
        self._visits = np.pad(self._visits, ((0, more), (0, 0)))

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._totals[row] = self._visits[row] = 0.0

    def shorten(self, row: int, share: float) -> None:
        """Let what ``row`` learned so far count for this share only: its habits have changed."""
        self._totals[row] *= share
        self._visits[row] *= share

    def keep_to(self, utc_offset_s: float) -> None:
        """The slots are those of a clock that is so far ahead of UTC from now on."""
        self._shift = round(utc_offset_s / self._cycle.slot_s)

    def rewind(self) -> None:
        """The clock was set back: the next look only finds out where it stands."""
        self._slot = None

    def advance(self, recent: CountWindow, rows: Rows, now_s: float) -> None:
        """Learn the slots that have ended by ``now_s``, as far as they were watched."""
        cycle = self._cycle
        slot = math.floor(now_s / cycle.slot_s)
        if self._slot is None or slot < self._slot:
            self._slot = slot
        fade = 1.0 - 1.0 / cycle.memory
        for ended in range(max(self._slot, slot - round(_CATCH_UP_S / cycle.slot_s)), slot):
            counts = recent.totals(rows, (ended + 1) * cycle.slot_s, cycle.slot_s)
            known, place = np.isfinite(counts), (ended + self._shift) % cycle.slots
            seen = rows[known]
            self._totals[seen, place] = fade * self._totals[seen, place] + counts[known]
            self._visits[seen, place] = fade * self._visits[seen, place] + 1.0
        self._slot = slot

    def expected(self, rows: Rows, now_s: float, delays_s: Floats, rates_per_s: Floats) -> Floats:
        """Arrivals within each delay of at most one cycle, by the means of past ones.

        Parameters
        ----------
        rates_per_s : (n,)
            Plain rates, which hold for slots that were hardly seen.

        Returns
        -------
        (n, delays) array.
        """
        cycle = self._cycle
        imagined = (cycle.imagined * cycle.slot_s * rates_per_s)[:, None]
        means = (self._totals[rows] + imagined) / (self._visits[rows] + cycle.imagined)
        place = (now_s / cycle.slot_s + self._shift) % cycle.slots
        found = np.empty((len(rows), len(delays_s)))
        for column, delay_s in enumerate(delays_s.tolist()):
            end = place + delay_s / cycle.slot_s
            slots = np.arange(math.floor(place), math.ceil(end))
            covered = np.minimum(slots + 1.0, end) - np.maximum(slots, place)
            found[:, column] = means[:, slots % cycle.slots] @ covered
        return found
