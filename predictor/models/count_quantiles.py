"""Quantiles around an expected count: what came of such expectations before.

Two things are learned. A table that all models share: by the size of the expectation, how far
outcomes lay from it. And for each model a shift of each quantile, moved a little after each
outcome so that in the long run as much lies under it as its level says (adaptive conformal
tracking): a job that comes exactly once is not as uncertain as people are.

Distances are taken between square roots, where the spread of counts hardly depends on their
size (Anscombe); for great counts, which vary in proportion, in parts of the root.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from contracts.forecasts import QUANTILE_LEVELS
from predictor.windows import Floats, Rows

LEVELS: Floats = np.array(
    [0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 0.995]
)
"""What is kept; finer than what is published, so that a whole law is known."""
PUBLISHED: Rows = np.array([int(np.searchsorted(LEVELS, level)) for level in QUANTILE_LEVELS])

_SHIFT = 3.0 / 8.0
_SIZES: Floats = np.exp(np.linspace(np.log(0.003), np.log(300.0), 23))
"""Expectations between two of these share a row of the table."""
_BINS = len(_SIZES) + 1
_EDGES: Floats = np.linspace(-6.0, 12.0, 361)
_CENTRES: Floats = (_EDGES[1:] + _EDGES[:-1]) / 2.0
_WIDE_ROOT = 4.0
"""Roots above this have distances in parts of them."""
_MEMORY_OUTCOMES = 3000.0
_IMAGINED = 8.0
"""Outcomes that pure chance counts as in each row of the table: the root of a Poisson count has
spread 1/2."""
_CHANCE: Floats = np.exp(-0.5 * np.square(_CENTRES / 0.5))
_CHANCE = _CHANCE / _CHANCE.sum()
_NEIGHBOUR = 0.3
"""What expectations of about the next size tell."""
_PACE = 0.08
"""How far a shift moves for an outcome: a few dozen of them make a model's own law."""
_FARTHEST = 1.0
_WIDEST = 16.0


def to_root(counts: Floats) -> Floats:
    """The space in which forecasts are compared with outcomes."""
    roots: Floats = np.sqrt(np.maximum(counts, 0.0) + _SHIFT)
    return roots


def from_root(roots: Floats) -> Floats:
    """The counts back, at least 0."""
    counts: Floats = np.maximum(np.square(np.maximum(roots, 0.0)) - _SHIFT, 0.0)
    return counts


class CountQuantiles:
    """The laws of outcomes around the expectations of several methods at one horizon.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    methods : int
        Each has a table and shifts of its own.
    share : float
        How much new an outcome is: 1 for horizons that do not overlap.
    """

    def __init__(self, rows: int, methods: int, *, share: float) -> None:
        self._share = share
        self._every = np.arange(methods)
        self._seen = np.zeros((methods, _BINS, len(_CENTRES)))
        self._came = np.zeros((methods, _BINS))
        self._expected = np.zeros((methods, _BINS))
        self._shifts = np.zeros((rows, methods, len(LEVELS)), dtype=np.float32)
        self._offsets = np.zeros((methods * _BINS, len(LEVELS)))
        self._stale = np.ones((methods, _BINS), dtype=bool)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        self._shifts = np.pad(self._shifts, ((0, rows - len(self._shifts)), (0, 0), (0, 0)))

    def clear(self, row: int) -> None:
        """Forget what ``row`` held; what all share stays."""
        self._shifts[row] = 0.0

    def roots(self, rows: Rows, expected: Floats) -> Floats:
        """Roots of the counts at ``LEVELS``, never decreasing.

        Parameters
        ----------
        rows : (n,)
        expected : (n, methods)
            Counts; not a number where a method has no opinion.

        Returns
        -------
        (n, methods, levels) array; not a number where the expectation is none.
        """
        known = np.where(np.isfinite(expected), expected, 0.0)
        centres = to_root(known)[:, :, None]
        self._renew()
        offsets = self._offsets[self._every * _BINS + _bin(known)] + self._shifts[rows]
        found = centres + offsets * _unit(centres)
        ordered: Floats = np.maximum.accumulate(np.maximum(found, 0.0), axis=2)
        return np.where(np.isfinite(expected)[:, :, None], ordered, np.nan)

    def means(self, expected: Floats) -> Floats:
        """Expectations (n, methods) set right by what came of those of their size."""
        known = np.where(np.isfinite(expected), expected, 0.0)
        bins = _bin(known)
        imagined = _IMAGINED * np.maximum(known, _SIZES[0])
        came, told = self._came[self._every, bins], self._expected[self._every, bins]
        right: Floats = np.maximum(known, 0.0) * (came + imagined) / (told + imagined)
        return np.where(np.isfinite(expected), right, np.nan)

    def learn(self, rows: Rows, expected: Floats, roots: Floats, outcomes: Floats) -> None:
        """``outcomes`` (n,) came where ``roots`` had been said of ``expected``.

        A method that had no opinion learns nothing.
        """
        spoke = np.isfinite(expected)
        came = to_root(outcomes)[:, None]
        step = _PACE * self._share * (LEVELS - (came[:, :, None] <= roots))
        shifted = np.clip(self._shifts[rows] + step, -_FARTHEST, _FARTHEST)
        self._shifts[rows] = np.where(spoke[:, :, None], shifted, self._shifts[rows])
        known = np.where(spoke, expected, 0.0)
        centres = to_root(known)
        distances = (came - centres) / _unit(centres)
        places = np.clip(np.searchsorted(_EDGES, distances) - 1, 0, len(_CENTRES) - 1)
        cells = self._every * _BINS + _bin(known)
        count = self._sum(cells, spoke)
        fade = (1.0 - self._share / _MEMORY_OUTCOMES) ** count
        # One outcome beyond all measure must not set every later expectation wrong.
        bounded = np.minimum(outcomes[:, None], _WIDEST * (1.0 + known))
        self._came = self._came * fade + self._share * self._sum(cells, spoke * bounded)
        self._expected = self._expected * fade + self._share * self._sum(cells, spoke * known)
        touched = count > 0.0
        self._seen[touched] *= fade[touched][:, None]
        flat = self._seen.reshape(-1, len(_CENTRES))
        np.add.at(flat, (cells[spoke], places[spoke]), self._share)
        self._stale |= touched
        self._stale[:, 1:] |= touched[:, :-1]
        self._stale[:, :-1] |= touched[:, 1:]

    def _sum(self, cells: Rows, values: Floats | npt.NDArray[np.bool_]) -> Floats:
        """Values (n, methods) added up by method and size."""
        size = len(self._every) * _BINS
        sums = np.bincount(cells.ravel(), weights=values.ravel(), minlength=size)
        return sums.reshape(-1, _BINS).astype(np.float64)

    def _renew(self) -> None:
        """Distances at ``LEVELS`` for each method and size of which something new is known."""
        methods, bins = np.nonzero(self._stale)
        if len(bins) == 0:
            return
        self._stale[:] = False
        seen = self._seen[methods, bins] + _IMAGINED * _CHANCE
        for beside in (-1, 1):
            inside = (bins + beside >= 0) & (bins + beside < _BINS)
            seen[inside] += _NEIGHBOUR * self._seen[methods[inside], bins[inside] + beside]
        sums = np.cumsum(seen, axis=1)
        sums /= sums[:, -1:]
        # Laid end to end they grow all the way, so that one search finds all levels.
        start = np.arange(len(sums))[:, None]
        reached = np.searchsorted(np.ravel(start + sums), start + LEVELS - 1e-9)
        places = np.minimum(reached - start * len(_CENTRES), len(_CENTRES) - 1)
        self._offsets[methods * _BINS + bins] = _CENTRES[places]


def counts_at(roots: Floats) -> Floats:
    """Whole counts of ``roots`` (…, levels) at ``QUANTILE_LEVELS``."""
    whole: Floats = np.rint(from_root(roots[..., PUBLISHED]))
    return whole


def law_at(roots: Floats, outcomes: Floats) -> tuple[Floats, Floats]:
    """P(count < outcome) and P(count <= outcome) under laws of ``roots`` (n, levels); each (n,)."""
    below = _share_under(roots, to_root(outcomes - 0.5))
    return np.where(outcomes > 0.0, below, 0.0), _share_under(roots, to_root(outcomes + 0.5))


def band_share(roots: Floats, outcomes: Floats) -> Floats:
    """How much of each outcome lies between the levels 0.1 and 0.9; (n, levels), (n,) give (n,).

    An outcome of a law of whole numbers takes up a stretch of probability, such as all that
    lies under 0.97 for a model that is hardly ever used: the part of it inside counts.
    """
    below, up_to = law_at(roots, outcomes)
    inside = np.minimum(up_to, 0.9) - np.maximum(below, 0.1)
    stretch = up_to - below
    certain = (below >= 0.1) & (up_to <= 0.9)
    shares: Floats = np.where(
        stretch > 1e-6, np.clip(inside, 0.0, None) / np.maximum(stretch, 1e-6), certain
    )
    return shares


def _share_under(roots: Floats, at: Floats) -> Floats:
    """The level at which each law reaches ``at``, linear between the levels that are kept."""
    reached = (roots < at[:, None]).sum(axis=1)
    levels = np.concatenate([[0.0], LEVELS, [1.0]])
    lows, highs = levels[reached], levels[reached + 1]
    # A law that leaps past `at` between two levels puts nothing in between.
    last = len(LEVELS) - 1
    every = np.arange(len(roots))
    left = roots[every, np.clip(reached - 1, 0, last)]
    right = roots[every, np.clip(reached, 0, last)]
    inner = (reached > 0) & (reached <= last) & (right > left)
    part = np.where(inner, (at - left) / np.maximum(right - left, 1e-9), 0.5)
    shares: Floats = lows + (highs - lows) * np.clip(part, 0.0, 1.0)
    return shares


def _bin(expected: Floats) -> Rows:
    return np.searchsorted(_SIZES, expected)


def _unit(roots: Floats) -> Floats:
    """What distances at roots of this size are measured in."""
    units: Floats = np.maximum(roots / _WIDE_ROOT, 1.0)
    return units
