"""Callers that live on the wall clock: the chance of a request in each minute of the hour.

Jobs of cron start at whole minutes, whatever else uses the model in between, so a model's own
gaps blur them and the minute of the hour does not. Sixty slots also hold every shorter period
that divides an hour. When within the minute a job's request comes is learned too, for all
slots of a model together: some come at once, some after a download.
"""

from __future__ import annotations

import math

import numpy as np

from predictor.windows import Floats, Rows

SLOT_S = 60.0
SLOTS = 60
MEMORY_VISITS = 24.0
"""A slot comes once an hour, so this is a day of them: a job that moved is unlearned in one."""
PRIOR_VISITS = 2.0
"""A slot counts as the model's mean slot this many times; its own third visit outweighs it."""
PARTS = 6
_PART_S = SLOT_S / PARTS
_MEMORY_STARTS = 100.0
_PRIOR_STARTS = 6.0
"""A request counts as equally likely at any time of its minute until so many were seen."""
_CERTAIN = 0.98
_MOST_PASSED = 24 * SLOTS
"""After a longer jump the hours in between were not watched and teach nothing."""


class HourSlots:
    """Hits and visits of each slot for each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._hits = np.zeros((rows, SLOTS))
        self._visits = np.zeros((rows, SLOTS))
        self._starts = np.zeros((rows, PARTS))
        self._hit_now = np.zeros(rows, dtype=bool)
        self._known = np.zeros(rows, dtype=bool)
        self._slot: int | None = None
        self._cumulative: Floats | None = None

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._known)
        self._hits = np.pad(self._hits, ((0, more), (0, 0)))
        self._visits = np.pad(self._visits, ((0, more), (0, 0)))
        self._starts = np.pad(self._starts, ((0, more), (0, 0)))
        self._hit_now = np.pad(self._hit_now, (0, more))
        self._known = np.pad(self._known, (0, more))
        self._cumulative = None

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._hits[row] = self._visits[row] = self._starts[row] = 0.0
        self._hit_now[row] = self._known[row] = False
        self._cumulative = None

    def rewind(self, now_s: float) -> None:
        """The clock was set back: the slot that runs is begun anew."""
        self._slot = math.floor(now_s / SLOT_S)
        self._hit_now[:] = False

    def add(self, row: int, at_s: float) -> None:
        """A request came. A straggler from an earlier slot is left out."""
        self.advance(at_s)
        if math.floor(at_s / SLOT_S) == self._slot and not self._hit_now[row]:
            self._hit_now[row] = True
            self._note_start(row, at_s)
        if not self._known[row]:
            self._known[row] = True
            self._cumulative = None

    def advance(self, now_s: float) -> None:
        """Close the slots that have ended by ``now_s``."""
        slot = math.floor(now_s / SLOT_S)
        if self._slot is None or slot - self._slot > _MOST_PASSED:
            self._slot = slot
            self._hit_now[:] = False
        fade = 1.0 - 1.0 / MEMORY_VISITS
        while self._slot < slot:
            place = self._slot % SLOTS
            self._hits[:, place] = fade * self._hits[:, place] + self._hit_now
            self._visits[:, place] = fade * self._visits[:, place] + self._known
            self._hit_now[:] = False
            self._slot += 1
            self._cumulative = None

    def cumulative(self, rows: Rows, now_s: float, delays_s: Floats) -> Floats:
        """H of a request within each delay of at most an hour; (n, delays).

        A slot that was hit already is as likely to see another request as any: one run of
        a job does not announce a second.
        """
        self.advance(now_s)
        sums = self._sums()
        place = (now_s / _PART_S) % (SLOTS * PARTS)
        ahead = _at(sums, rows, place + np.concatenate([[0.0], delays_s / _PART_S]))
        hazard: Floats = ahead[:, 1:] - ahead[:, :1]
        hit = self._hit_now[rows]
        if hit.any():
            begin = math.floor(place / PARTS) * PARTS
            ends = np.minimum(place + np.concatenate([[0.0], delays_s / _PART_S]), begin + PARTS)
            inside = _at(sums, rows, ends)
            mass = sums[rows, begin + PARTS] - sums[rows, begin]
            mean = sums[rows, SLOTS * PARTS] / SLOTS
            surplus = np.where(hit, np.maximum(1.0 - mean / mass, 0.0), 0.0)
            hazard -= surplus[:, None] * (inside[:, 1:] - inside[:, :1])
        return hazard

    def _note_start(self, row: int, at_s: float) -> None:
        """When in its minute it came counts as much as the minute was to be expected."""
        slot = math.floor(at_s / SLOT_S) % SLOTS
        chance = self._hits[row, slot] / max(self._visits[row, slot], 1.0)
        self._starts[row] *= 1.0 - chance / _MEMORY_STARTS
        self._starts[row, math.floor(at_s / _PART_S) % PARTS] += chance

    def _sums(self) -> Floats:
        """Hazard from the hour's beginning to the end of each part of each slot of two hours."""
        if self._cumulative is None:
            hits, visits = self._hits.sum(axis=1), self._visits.sum(axis=1)
            overall = ((hits + 0.5) / (visits + 1.0))[:, None]
            chance = (self._hits + PRIOR_VISITS * overall) / (self._visits + PRIOR_VISITS)
            mass = -np.log1p(-np.minimum(chance, _CERTAIN))
            starts = self._starts + _PRIOR_STARTS / PARTS
            shares = starts / starts.sum(axis=1, keepdims=True)
            hour = (mass[:, :, None] * shares[:, None, :]).reshape(len(mass), SLOTS * PARTS)
            twice = np.concatenate([np.zeros((len(mass), 1)), hour, hour], axis=1)
            self._cumulative = np.cumsum(twice, axis=1)
        return self._cumulative


def _at(sums: Floats, rows: Rows, places: Floats) -> Floats:
    """``sums`` of ``rows`` at ``places``, linear between two; (n, places)."""
    whole = np.minimum(places.astype(np.intp), sums.shape[1] - 2)
    part = places - whole
    left, right = sums[np.ix_(rows, whole)], sums[np.ix_(rows, whole + 1)]
    between: Floats = left + (right - left) * part
    return between
