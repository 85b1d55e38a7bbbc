"""Quantiles around a forecast, from how far its recent outcomes lay from it.

Distances are taken between square roots: there the spread of counts hardly depends on their
size (Anscombe), so outcomes at quiet times say something about busy ones.
"""

from __future__ import annotations

import numpy as np

from contracts.forecasts import QUANTILE_LEVELS
from predictor.windows import Floats, Rows

RESIDUALS = 100
"""Outcomes kept: the 0.99 quantile needs about so many."""
_IMAGINED = 8.0
"""Outcomes that pure chance counts as, until real ones outweigh it."""
_SHIFT = 3.0 / 8.0
# Quantiles of the normal law at QUANTILE_LEVELS; the root of a Poisson count has spread 1/2.
_POISSON_OFFSETS: Floats = np.array([-1.2816, 0.0, 1.2816, 2.3263]) / 2.0


def to_root(counts: Floats) -> Floats:
    """The space in which forecasts are compared with outcomes."""
    roots: Floats = np.sqrt(np.maximum(counts, 0.0) + _SHIFT)
    return roots


def from_root(roots: Floats) -> Floats:
    """The counts back, at least 0."""
    return np.maximum(np.square(np.maximum(roots, 0.0)) - _SHIFT, 0.0)


class ResidualQuantiles:
    """The last residuals of each row at one horizon.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._residuals = np.full((rows, RESIDUALS), np.nan, dtype=np.float32)
        self._seen = np.zeros(rows, dtype=np.int64)
        self._offsets = np.tile(_POISSON_OFFSETS, (rows, 1))
        self._variance = np.full(rows, 0.25)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._seen)
        pad = ((0, more), (0, 0))
        self._residuals = np.pad(self._residuals, pad, constant_values=np.nan)
        self._seen = np.pad(self._seen, (0, more))
        self._offsets = np.concatenate([self._offsets, np.tile(_POISSON_OFFSETS, (more, 1))])
        self._variance = np.pad(self._variance, (0, more), constant_values=0.25)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._residuals[row] = np.nan
        self._seen[row] = 0
        self._offsets[row] = _POISSON_OFFSETS
        self._variance[row] = 0.25

    def learn(self, rows: Rows, roots: Floats, outcomes: Floats) -> None:
        """``outcomes`` came where the forecasts were ``roots``."""
        if len(rows) == 0:
            return
        self._residuals[rows, self._seen[rows] % RESIDUALS] = to_root(outcomes) - roots
        self._seen[rows] += 1
        known = np.minimum(self._seen[rows], RESIDUALS).astype(np.float64)
        ordered = np.sort(self._residuals[rows], axis=1)  # what is not known sorts last
        trust = (known / (known + _IMAGINED))[:, None]
        levels = np.array(QUANTILE_LEVELS)
        # The rank that makes coverage right for exchangeable outcomes (conformal prediction).
        ranks = np.ceil(levels * (known[:, None] + 1.0)).astype(np.intp) - 1
        ranks = np.clip(ranks, 0, known[:, None].astype(np.intp) - 1)
        empirical = np.take_along_axis(ordered, ranks, axis=1)
        self._offsets[rows] = trust * empirical + (1.0 - trust) * _POISSON_OFFSETS
        spread = np.nanvar(self._residuals[rows], axis=1)
        self._variance[rows] = trust[:, 0] * spread + (1.0 - trust[:, 0]) * 0.25

    def quantiles(self, rows: Rows, roots: Floats) -> Floats:
        """Counts at ``QUANTILE_LEVELS`` for forecasts ``roots``; whole, never decreasing.

        Returns
        -------
        (n, levels) array.
        """
        counts = from_root(roots[:, None] + self._offsets[rows])
        ordered: Floats = np.maximum.accumulate(np.rint(counts), axis=1)
        return ordered

    def means(self, rows: Rows, roots: Floats) -> Floats:
        """Expected counts: the square of a mean is short of the mean of squares by the variance."""
        squares = np.square(np.maximum(roots, 0.0)) + self._variance[rows]
        expected: Floats = np.maximum(squares - _SHIFT, 0.0)
        return expected
