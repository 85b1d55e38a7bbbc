"""Which model follows which, and how soon: speech to text, then a chat, then speech again.

Each model keeps a few leaders, the models that it was most often seen to follow within a
minute. When a leader is used, an episode begins for its follower; it ends when the follower is
used or the leader is used again. Of each age of an episode it is known how often it got there
and how often the follower came then, so an episode has a hazard like a silence has.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import OrderedDict

import numpy as np

from predictor.windows import Floats, Rows

LEADERS = 4
"""Leaders kept per model; a chain has one, a fan-out a few."""
_EDGES_S: Floats = np.array([0.0, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0, 120.0, 300.0])
_EDGES: tuple[float, ...] = tuple(_EDGES_S.tolist())
_WIDTHS_S: Floats = np.diff(_EDGES_S)
_BINS = len(_WIDTHS_S)
_LONGEST_S = float(_EDGES_S[-1])
_SOON_S = 60.0
"""A model that comes later than this after another is no sign that it follows it."""
_BURST_S = 15.0
"""Requests of a leader that come closer than this are one use, and begin one episode."""
_RECENT = 16
"""Other models that a request may have followed: the last few that were used."""
_MEMORY_EPISODES = 50.0
_FADE = 1.0 - 1.0 / _MEMORY_EPISODES
_UP_TO: tuple[Floats, ...] = tuple(
    (np.arange(_BINS) < count).astype(np.float64) for count in range(_BINS + 1)
)
"""One in each of so many first bins."""
_PRIOR_EPISODES = 2.0
"""An episode counts as the model's plain rate until so many were seen."""
_MOST_TOLD = 8
"""Followers whose curves are to be renewed at once; the others' are when all are."""
_NOBODY = -1


class Following:
    """Leaders and episodes of each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._leaders = np.full((rows, LEADERS), _NOBODY, dtype=np.intp)
        self._credits = np.zeros((rows, LEADERS))
        # How often it came at each age, and how often the age was reached: they fade together.
        self._seen = np.zeros((rows, LEADERS, 2, _BINS))
        self._begun_s = np.full((rows, LEADERS), np.nan)
        self._last_s = np.full(rows, np.nan)
        self._followers: dict[int, dict[int, int]] = {}
        self._recent: OrderedDict[int, float] = OrderedDict()

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._last_s)
        flat, deep = ((0, more), (0, 0)), ((0, more), (0, 0), (0, 0), (0, 0))
        self._leaders = np.pad(self._leaders, flat, constant_values=_NOBODY)
        self._credits = np.pad(self._credits, flat)
        self._seen = np.pad(self._seen, deep)
        self._begun_s = np.pad(self._begun_s, flat, constant_values=np.nan)
        self._last_s = np.pad(self._last_s, (0, more), constant_values=np.nan)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held, as a follower and as a leader."""
        for place in range(LEADERS):
            self._let_go(row, place)
        for follower, place in list(self._followers.get(row, {}).items()):
            self._let_go(follower, place)
        self._recent.pop(row, None)
        self._last_s[row] = np.nan

    def rewind(self, now_s: float) -> None:
        """The clock was set back: what has begun since has not."""
        self._recent.clear()
        self._begun_s[:] = np.nan
        self._last_s = np.minimum(self._last_s, now_s)

    def arrive(self, row: int, at_s: float) -> tuple[int, ...]:
        """A request came for ``row``; arrivals of one row are told in order.

        Returns
        -------
        tuple of int
            Rows that tend to follow it, for which an episode begins now; at most a few.
        """
        for place, begun_s in enumerate(self._begun_s[row].tolist()):
            if math.isfinite(begun_s):
                self._end(row, place, at_s, came=True)
        self._look_for_leaders(row, at_s)
        self._last_s[row] = at_s
        self._recent[row] = at_s
        self._recent.move_to_end(row)
        if len(self._recent) > _RECENT:
            self._recent.popitem(last=False)
        begun = [
            follower
            for follower, place in self._followers.get(row, {}).items()
            if self._begin(follower, place, at_s)
        ]
        return tuple(begun[:_MOST_TOLD])

    def cumulative(
        self, rows: Rows, now_s: float, delays_s: Floats, rates_per_s: Floats
    ) -> tuple[Rows, Floats]:
        """H within each delay for those of ``rows`` that follow something that was just used.

        Parameters
        ----------
        rates_per_s : (n,)
            Plain rates, which hold where nothing else is known.

        Returns
        -------
        (m,) places in ``rows``, (m, delays) hazards; of several leaders the most telling.
        """
        ages_s = now_s - self._begun_s[rows]
        waiting = (ages_s >= 0.0) & (ages_s < _LONGEST_S)
        places = np.flatnonzero(waiting.any(axis=1))
        if len(places) == 0:
            return places, np.empty((0, len(delays_s)))
        chosen, rates = rows[places], rates_per_s[places]
        plain = rates[:, None, None] * _WIDTHS_S
        imagined = _PRIOR_EPISODES * -np.expm1(-plain)
        seen = self._seen[chosen]
        chance = (seen[:, :, 0] + imagined) / (seen[:, :, 1] + _PRIOR_EPISODES)
        mass = -np.log1p(-np.minimum(chance, 0.98))
        sums = np.concatenate([np.zeros((*mass.shape[:2], 1)), np.cumsum(mass, axis=2)], axis=2)
        start_s = np.where(waiting[places], ages_s[places], _LONGEST_S)
        points_s = start_s[:, :, None] + np.concatenate([[0.0], delays_s])
        within = _interpolated(sums, np.minimum(points_s, _LONGEST_S))
        beyond = rates[:, None, None] * np.maximum(points_s - _LONGEST_S, 0.0)
        total = within + beyond
        ahead: Floats = total[:, :, 1:] - total[:, :, :1]
        return places, ahead.max(axis=1)

    def _look_for_leaders(self, row: int, at_s: float) -> None:
        """Whoever was just used shares the credit: in a crowd no one is told much by it."""
        own_last_s = float(self._last_s[row])
        near = [
            (leader, led_s)
            for leader, led_s in self._recent.items()
            if leader != row and 0.0 <= at_s - led_s <= _SOON_S and not led_s <= own_last_s
        ]
        if not near:
            return
        credit = 1.0 / len(near)
        # Lists, since numpy takes a microsecond for each number that is looked at alone.
        leaders: list[int] = self._leaders[row].tolist()
        credits_: list[float] = self._credits[row].tolist()
        for leader, led_s in near:
            if leader in leaders:
                credits_[leaders.index(leader)] += credit
                continue
            # The frequent-items rule of Misra and Gries: a newcomer wears down the weakest.
            weakest = credits_.index(min(credits_))
            if credits_[weakest] >= credit:
                credits_[weakest] -= credit
                continue
            self._let_go(row, weakest)
            leaders[weakest], credits_[weakest] = leader, credit
            self._leaders[row, weakest] = leader
            self._followers.setdefault(leader, {})[row] = weakest
            self._begun_s[row, weakest] = led_s
            self._end(row, weakest, at_s, came=True)
        self._credits[row] = credits_

    def _begin(self, follower: int, place: int, at_s: float) -> bool:
        begun_s = float(self._begun_s[follower, place])
        if not math.isnan(begun_s):
            if at_s - begun_s < _BURST_S:
                return False
            self._end(follower, place, at_s, came=False)
        self._begun_s[follower, place] = at_s
        return True

    def _end(self, row: int, place: int, at_s: float, *, came: bool) -> None:
        age_s = at_s - float(self._begun_s[row, place])
        self._begun_s[row, place] = np.nan
        if age_s < 0.0:
            return
        seen = self._seen[row, place]
        seen *= _FADE
        # What ended within a bin without the follower had not gone all the way through it.
        last = bisect_right(_EDGES, age_s) - 1
        seen[1] += _UP_TO[min(last + came, _BINS)]
        if came and last < _BINS:
            seen[0, last] += 1.0

    def _let_go(self, row: int, place: int) -> None:
        leader = int(self._leaders[row, place])
        if leader != _NOBODY:
            followers = self._followers[leader]
            followers.pop(row, None)
            if not followers:
                del self._followers[leader]
        self._leaders[row, place] = _NOBODY
        self._credits[row, place] = 0.0
        self._seen[row, place] = 0.0
        self._begun_s[row, place] = np.nan


def _interpolated(sums: Floats, ages_s: Floats) -> Floats:
    """``sums`` (n, leaders, edges) at ``ages_s`` (n, leaders, k), linear within each bin."""
    bins = np.clip(np.searchsorted(_EDGES_S, ages_s, side="right") - 1, 0, _BINS - 1)
    left = np.take_along_axis(sums, bins, axis=2)
    right = np.take_along_axis(sums, bins + 1, axis=2)
    at: Floats = left + (right - left) * (ages_s - _EDGES_S[bins]) / _WIDTHS_S[bins]
    return at
