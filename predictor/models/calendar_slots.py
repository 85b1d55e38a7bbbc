"""Callers that live on the wall clock: the chance of a request in each slot of a calendar.

Jobs of cron start at set times, whatever else uses the model in between, so a model's own gaps
blur them and the slot of the hour or of the day does not. When within its slot a job's request
comes is learned too, for all slots of a model together: some come at once, some after a
download.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from predictor.windows import Floats, Rows

_DAY_S = 86_400.0
_MONDAY = 3
"""The epoch began on a Thursday."""
_WORKDAYS = 5


@dataclass(frozen=True, slots=True)
class Calendar:
    """How time is cut into slots that come again.

    Attributes
    ----------
    slots : int
        Slots in a period; the last of them ends where the first begins anew.
    parts : int
        Parts of a slot that are told apart when it is learned how far into it requests come.
    memory_visits : float
        Visits of a slot after which what was seen there has faded to a third.
    weekends : bool
        Whether Saturdays and Sundays have slots of their own.
    """

    slot_s: float
    slots: int
    parts: int
    memory_visits: float
    weekends: bool

    @property
    def places(self) -> int:
        """Slots that are kept."""
        return self.slots * (1 + self.weekends)

    def place(self, slots: Rows) -> Rows:
        """Where slots, numbered from the epoch, are kept."""
        place = slots % self.slots
        if self.weekends:
            days = (slots * self.slot_s // _DAY_S).astype(np.intp) + _MONDAY
            place = place + self.slots * (days % 7 >= _WORKDAYS)
        return place


HOUR = Calendar(slot_s=60.0, slots=60, parts=6, memory_visits=24.0, weekends=False)
"""Minutes of the hour, in which all shorter periods that divide an hour lie too; a job that
moved is unlearned within a day."""
DAY = Calendar(slot_s=300.0, slots=288, parts=10, memory_visits=10.0, weekends=True)
"""Five minutes of the day: a job that moved is unlearned within two working weeks."""

PRIOR_VISITS = 2.0
"""A slot counts as the model's mean slot this many times; its own third visit outweighs it."""
_MEMORY_STARTS = 100.0
_PRIOR_STARTS = 6.0
"""A request counts as equally likely at any time of its slot until so many were seen."""
_CERTAIN = 0.98
_LONGEST_S = 3600.0
"""Delays that are asked about are no longer than this."""
_MOST_PASSED_S = _DAY_S
"""After a longer jump the time in between was not watched and teaches nothing."""


class CalendarSlots:
    """Hits and visits of each slot for each row.

    Parameters
    ----------
    calendar : Calendar
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, calendar: Calendar, rows: int) -> None:
        self._calendar = calendar
        self._hits = np.zeros((rows, calendar.places), dtype=np.float32)
        self._visits = np.zeros((rows, calendar.places), dtype=np.float32)
        self._all_hits = np.zeros(rows)
        self._all_visits = np.zeros(rows)
        self._starts = np.zeros((rows, calendar.parts))
        self._hit_now = np.zeros(rows, dtype=bool)
        self._known = np.zeros(rows, dtype=bool)
        self._slot: int | None = None
        self._shift = 0
        # What lies ahead changes when a slot ends or a request comes, not with each look.
        self._first: int | None = None
        self._ahead = math.ceil(_LONGEST_S / calendar.slot_s) + 2
        self._sums = np.zeros((rows, self._ahead * calendar.parts + 1))
        self._mean = np.zeros(rows)
        self._stale = np.ones(rows, dtype=bool)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._known)
        flat, wide = (0, more), ((0, more), (0, 0))
        self._hits = np.pad(self._hits, wide)
        self._visits = np.pad(self._visits, wide)
        self._all_hits = np.pad(self._all_hits, flat)
        self._all_visits = np.pad(self._all_visits, flat)
        self._starts = np.pad(self._starts, wide)
        self._hit_now = np.pad(self._hit_now, flat)
        self._known = np.pad(self._known, flat)
        self._sums = np.pad(self._sums, wide)
        self._mean = np.pad(self._mean, flat)
        self._stale = np.pad(self._stale, flat, constant_values=True)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._hits[row] = self._visits[row] = 0.0
        self._all_hits[row] = self._all_visits[row] = 0.0
        self._starts[row] = 0.0
        self._hit_now[row] = self._known[row] = False
        self._stale[row] = True

    def keep_to(self, utc_offset_s: float) -> None:
        """The slots are those of a clock that is so far ahead of UTC from now on."""
        self._shift = round(utc_offset_s / self._calendar.slot_s)
        self._stale[:] = True

    def rewind(self, now_s: float) -> None:
        """The clock was set back: the slot that runs is begun anew."""
        self._slot = self._number(now_s)
        self._hit_now[:] = False
        self._stale[:] = True

    def add(self, row: int, at_s: float) -> None:
        """A request came. A straggler from an earlier slot is left out."""
        self.advance(at_s)
        if self._number(at_s) == self._slot and not self._hit_now[row]:
            self._hit_now[row] = True
            self._note_start(row, at_s)
        self._known[row] = True

    def advance(self, now_s: float) -> None:
        """Close the slots that have ended by ``now_s``."""
        slot = self._number(now_s)
        if self._slot is None or (slot - self._slot) * self._calendar.slot_s > _MOST_PASSED_S:
            self._slot = slot
            self._hit_now[:] = False
        while self._slot < slot:
            self._close(int(self._places(np.array([self._slot]))[0]))
            self._slot += 1

    def cumulative(self, rows: Rows, now_s: float, delays_s: Floats) -> Floats:
        """H of a request within each delay of at most an hour; (n, delays).

        A slot that was hit already is as likely to see another request as any: one run of
        a job does not announce a second.
        """
        self.advance(now_s)
        calendar = self._calendar
        first = self._number(now_s)
        if first != self._first:
            self._first = first
            self._stale[:] = True
        self._renew(rows, first)
        mean, sums = self._mean[rows], self._sums[rows]
        place = (now_s / calendar.slot_s - first) * calendar.parts
        points = place + np.concatenate([[0.0], delays_s * calendar.parts / calendar.slot_s])
        ahead = _at(sums, points)
        hazard: Floats = ahead[:, 1:] - ahead[:, :1]
        hit = self._hit_now[rows]
        if hit.any():
            inside = _at(sums, np.minimum(points, calendar.parts))
            surplus = np.where(hit, np.maximum(1.0 - mean / sums[:, calendar.parts], 0.0), 0.0)
            hazard -= surplus[:, None] * (inside[:, 1:] - inside[:, :1])
        return hazard

    def _number(self, at_s: float) -> int:
        return math.floor(at_s / self._calendar.slot_s)

    def _places(self, slots: Rows) -> Rows:
        return self._calendar.place(slots + self._shift)

    def _close(self, place: int) -> None:
        fade = 1.0 - 1.0 / self._calendar.memory_visits
        hits, visits = self._hits[:, place], self._visits[:, place]
        self._all_hits += self._hit_now - (1.0 - fade) * hits
        self._all_visits += self._known - (1.0 - fade) * visits
        self._hits[:, place] = fade * hits + self._hit_now
        self._visits[:, place] = fade * visits + self._known
        self._hit_now[:] = False
        self._stale[:] = True

    def _note_start(self, row: int, at_s: float) -> None:
        """When in its slot it came counts as much as the slot was to be expected."""
        calendar = self._calendar
        place = self._places(np.array([self._number(at_s)]))[0]
        chance = float(self._hits[row, place]) / max(float(self._visits[row, place]), 1.0)
        part = math.floor(at_s * calendar.parts / calendar.slot_s) % calendar.parts
        self._starts[row] *= 1.0 - chance / _MEMORY_STARTS
        self._starts[row, part] += chance
        self._stale[row] = True

    def _renew(self, asked: Rows, first: int) -> None:
        """Hazard of a mean slot, and from the slot ``first`` to the end of each part ahead."""
        rows = asked[self._stale[asked]]
        if len(rows) == 0:
            return
        overall = (np.maximum(self._all_hits[rows], 0.0) + 0.5) / (
            np.maximum(self._all_visits[rows], 0.0) + 1.0
        )
        places = np.ix_(rows, self._places(np.arange(first, first + self._ahead)))
        chance = (self._hits[places] + PRIOR_VISITS * overall[:, None]) / (
            self._visits[places] + PRIOR_VISITS
        )
        mass = -np.log1p(-np.minimum(chance, _CERTAIN))
        starts = self._starts[rows] + _PRIOR_STARTS / self._calendar.parts
        shares = starts / starts.sum(axis=1, keepdims=True)
        parts = (mass[:, :, None] * shares[:, None, :]).reshape(len(rows), -1)
        self._sums[rows, 1:] = np.cumsum(parts, axis=1)
        self._mean[rows] = -np.log1p(-np.minimum(overall, _CERTAIN))
        self._stale[rows] = False


def _at(sums: Floats, points: Floats) -> Floats:
    """``sums`` (n, parts + 1) at ``points`` (k,), linear between two; (n, k)."""
    whole = np.minimum(points.astype(np.intp), sums.shape[1] - 2)
    left, right = sums[:, whole], sums[:, whole + 1]
    between: Floats = left + (right - left) * (points - whole)
    return between
