"""How likely a model's silence is to end now, learned from how long its silences lasted.

One row per model. A row holds, per bin of age, how many gaps reached it and how many ended
there: their quotient is the chance to end within the bin. Bins are logarithmic, so a second
matters at a second and a minute matters at an hour.
"""

from __future__ import annotations

import numpy as np

from predictor.windows import Floats, Rows

FINE_RATIO = 1.025
"""Width of a bin: 2.5 % of the age, so a caller that comes each hour is known to 90 s."""
FINE_PER_COARSE = 5
"""Five fine bins make one of 13 %: what a handful of gaps can already fill."""
LONGEST_S = 7 * 86_400.0
"""Silences beyond a week share one open bin."""
PRIOR_GAPS = 2.0
"""The population counts as this many gaps of each model: its own third gap outweighs it."""
PRIOR_EVENTS = 2.0
"""Ends within a coarse bin count as evenly spread until this many were seen there."""
MEMORY_GAPS = 200.0
"""Older gaps fade: this many tell a hazard to about 7 %, and more would only slow a change."""

_CERTAIN = 0.999
"""No chance is taken for more than this, since its hazard would have no end."""
_COARSE = int(np.ceil(np.log(LONGEST_S) / np.log(FINE_RATIO) / FINE_PER_COARSE)) + 1
BINS = _COARSE * FINE_PER_COARSE
_LOG_RATIO = float(np.log(FINE_RATIO))


def _edges() -> Floats:
    """Left edges: the coarse bin of the first second is cut evenly, the rest by the ratio."""
    below = np.arange(FINE_PER_COARSE) / FINE_PER_COARSE
    above = FINE_RATIO ** np.arange(BINS - FINE_PER_COARSE + 1, dtype=np.float64)
    return np.concatenate([below, above])


EDGES_S: Floats = _edges()
WIDTHS_S: Floats = np.diff(EDGES_S)


def bins_of(ages_s: Floats) -> Rows:
    """The bin that each age lies in; ages past the last edge lie in the last bin."""
    logs = FINE_PER_COARSE + np.log(np.maximum(ages_s, 1.0)) / _LOG_RATIO
    inner = np.where(ages_s < 1.0, ages_s * FINE_PER_COARSE, logs)
    return np.clip(inner, 0, BINS - 1).astype(np.intp)


class GapHazard:
    """Hazard by age for every row, shrunk to the population's where its own gaps are few.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._ends = np.zeros((rows, BINS))
        self._reached = np.zeros((rows, BINS))
        self._gaps = np.zeros(rows)
        # Before anything was seen, a silence is as likely to last seconds as hours: one
        # imagined model whose gaps are even over the logarithm of time.
        self._vague_ends = np.full(BINS, 1.0 / BINS)
        self._vague_reached = 1.0 - np.arange(BINS) / BINS
        self._prior_ends = self._vague_ends.copy()
        self._prior_reached = self._vague_reached.copy()
        self._hazard = np.zeros((rows, BINS))
        self._cumulative = np.zeros((rows, BINS))
        self._stale = np.ones(rows, dtype=bool)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._gaps)
        pad = ((0, more), (0, 0))
        self._ends = np.pad(self._ends, pad)
        self._reached = np.pad(self._reached, pad)
        self._hazard = np.pad(self._hazard, pad)
        self._cumulative = np.pad(self._cumulative, pad)
        self._gaps = np.pad(self._gaps, (0, more))
        self._stale = np.pad(self._stale, (0, more), constant_values=True)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._ends[row] = 0.0
        self._reached[row] = 0.0
        self._gaps[row] = 0.0
        self._stale[row] = True

    def learn(self, row: int, gap_s: float) -> None:
        """A silence of ``gap_s`` seconds has ended."""
        fade = 1.0 - 1.0 / MEMORY_GAPS
        ends, reached = self._ends[row], self._reached[row]
        ends *= fade
        reached *= fade
        self._gaps[row] = self._gaps[row] * fade + 1.0
        last = int(bins_of(np.array([gap_s]))[0])
        reached[: last + 1] += 1.0
        ends[last] += 1.0
        self._stale[row] = True

    def gaps(self, rows: Rows) -> Floats:
        """How many gaps each of ``rows`` has seen, faded."""
        return self._gaps[rows]

    def refresh_population(self, rows: Rows) -> None:
        """Make the mean of ``rows`` the prior; each weighs one, however busy it is."""
        weight = 1.0 / (self._gaps[rows] + PRIOR_GAPS)
        total = 1.0 + float((self._gaps[rows] * weight).sum())
        self._prior_ends = (self._vague_ends + weight @ self._ends[rows]) / total
        self._prior_reached = (self._vague_reached + weight @ self._reached[rows]) / total
        self._stale[:] = True

    def cumulative(self, rows: Rows, ages_s: Floats, delays_s: Floats) -> Floats:
        """H of a request within each delay, given a silence of ``ages_s`` so far.

        Parameters
        ----------
        rows, ages_s : (n,)
        delays_s : (k,)

        Returns
        -------
        (n, k) array, not decreasing along the second axis.
        """
        self._renew(rows)
        start_s = np.maximum(ages_s, 0.0)[:, None]
        ends_s = start_s + delays_s[None, :]
        at_start = self._at(rows[:, None], start_s)
        return np.maximum(self._at(rows[:, None], ends_s) - at_start, 0.0)

    def _at(self, rows: Rows, ages_s: Floats) -> Floats:
        bins = bins_of(ages_s)
        into_s = ages_s - EDGES_S[bins]
        return self._cumulative[rows, bins] + self._hazard[rows, bins] * into_s

    def _renew(self, rows: Rows) -> None:
        stale = rows[self._stale[rows]]
        if len(stale) == 0:
            return
        shape = (len(stale), _COARSE, FINE_PER_COARSE)
        ends = (self._ends[stale] + PRIOR_GAPS * self._prior_ends).reshape(shape)
        reached = (self._reached[stale] + PRIOR_GAPS * self._prior_reached).reshape(shape)
        coarse = ends.sum(axis=2, keepdims=True) / reached[:, :, :1]
        even = 1.0 - (1.0 - np.minimum(coarse, _CERTAIN)) ** (1.0 / FINE_PER_COARSE)
        imagined = PRIOR_EVENTS / coarse
        chance = (ends + imagined * even) / (reached + imagined)
        mass = -np.log1p(-np.minimum(chance, _CERTAIN)).reshape(len(stale), BINS)
        self._hazard[stale] = mass / WIDTHS_S
        self._cumulative[stale, 1:] = np.cumsum(mass, axis=1)[:, :-1]
        self._cumulative[stale, 0] = 0.0
        self._stale[stale] = False
