"""Whether what is foretold with 70 % comes in 70 of 100 cases, and what sets it right.

All models share the table: by how likely a request within a delay was called, how often one
came. A probability is then replaced by what came of those like it (a histogram of calibration,
linear between the middles of its bins), as far as enough of them were seen.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from predictor.windows import Floats, Rows

_EDGES: Floats = np.array(
    [0.0, 0.003, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.97, 1.0]
)
"""Finer where most cases are."""
_BINS = len(_EDGES) - 1
_IMAGINED = 50.0
"""Cases that count as foretold rightly in each bin."""
_MEMORY_CASES = 5000.0
"""Cases of a bin after which what was seen has faded."""
_LONGEST_STEP = 1.0
"""A corrected log hazard lies within this of what was said, so that no table undoes a curve."""
_CERTAIN = 1.0 - 1e-6

TENTHS = 10
_SPOKEN_CASES = 200.0
"""A tenth of the probabilities with fewer cases says nothing."""


class Calibration:
    """What came of each probability, for several delays.

    Parameters
    ----------
    delays_s : (k,)
        Delays that outcomes are known for, ascending.
    """

    def __init__(self, delays_s: Floats) -> None:
        self._log_delays = np.log(delays_s)
        shape = (len(delays_s), _BINS)
        self._told = np.zeros(shape)
        self._came = np.zeros(shape)
        self._cases = np.zeros(shape)
        self._points: Floats | None = None

    def learn(self, delay: int, foretold: Floats, came: npt.NDArray[np.bool_]) -> None:
        """Outcomes (n,) of probabilities (n,) for delay number ``delay``, as they were said."""
        bins = _bin(foretold)
        cases = np.bincount(bins, minlength=_BINS)
        fade = (1.0 - 1.0 / _MEMORY_CASES) ** cases
        for sums, values in (
            (self._told, foretold),
            (self._came, came.astype(np.float64)),
            (self._cases, np.ones(len(foretold))),
        ):
            sums[delay] = fade * sums[delay] + np.bincount(bins, values, minlength=_BINS)
        self._points = None

    def correct(self, hazards: Floats, delays_s: Floats) -> Floats:
        """Cumulative hazards (n, delays) set right; finite, at least 0, never decreasing.

        Between the delays that outcomes are known for, corrections are linear in the
        logarithm of the delay; beyond them they stay as they are at the ends.
        """
        xs, ys = self._curve()
        logs = np.log(np.maximum(delays_s, 1e-9))
        at = np.interp(logs, self._log_delays, np.arange(len(self._log_delays)))
        low = np.minimum(at.astype(np.intp), len(self._log_delays) - 1)
        high = np.minimum(low + 1, len(self._log_delays) - 1)
        part = at - low
        foretold = -np.expm1(-hazards)
        right = np.empty_like(foretold)
        for column in range(len(delays_s)):
            one = np.interp(foretold[:, column], xs[low[column]], ys[low[column]])
            other = np.interp(foretold[:, column], xs[high[column]], ys[high[column]])
            right[:, column] = one + part[column] * (other - one)
        corrected = -np.log1p(-np.minimum(right, _CERTAIN))
        factor = np.exp(_LONGEST_STEP)
        bounded = np.clip(corrected, hazards / factor, hazards * factor)
        found: Floats = np.maximum.accumulate(bounded, axis=1)
        return found

    def _curve(self) -> tuple[Floats, Floats]:
        """Per delay: probabilities as they are said, and as they are right; both ascending."""
        if self._points is None:
            middles = (_EDGES[1:] + _EDGES[:-1]) / 2.0
            weight = self._cases + _IMAGINED
            said = (self._told + _IMAGINED * middles) / weight
            right = (self._came + _IMAGINED * said) / weight
            # A higher probability is never set lower than a smaller one.
            right = np.maximum.accumulate(right, axis=1)
            zeros, ones = np.zeros((len(said), 1)), np.ones((len(said), 1))
            self._points = np.stack(
                [
                    np.concatenate([zeros, said, ones], axis=1),
                    np.concatenate([zeros, np.minimum(right, 1.0), ones], axis=1),
                ]
            )
        return self._points[0], self._points[1]


class Reliability:
    """By tenths of the probabilities, what was foretold and what came."""

    def __init__(self) -> None:
        self._told = np.zeros(TENTHS)
        self._came = np.zeros(TENTHS)
        self._cases = np.zeros(TENTHS)

    def learn(self, foretold: Floats, came: npt.NDArray[np.bool_]) -> None:
        """Outcomes (n,) of probabilities (n,)."""
        bins = np.minimum((foretold * TENTHS).astype(np.intp), TENTHS - 1)
        cases = np.bincount(bins, minlength=TENTHS)
        fade = (1.0 - 1.0 / (10.0 * _MEMORY_CASES)) ** cases
        self._told = fade * self._told + np.bincount(bins, foretold, minlength=TENTHS)
        self._came = fade * self._came + np.bincount(bins, came, minlength=TENTHS)
        self._cases = fade * self._cases + cases

    @property
    def worst(self) -> float | None:
        """The farthest that any tenth with enough cases lies from the truth; None: none has."""
        enough = self._cases >= _SPOKEN_CASES
        if not enough.any():
            return None
        apart = np.abs(self._told[enough] - self._came[enough]) / self._cases[enough]
        return float(apart.max())


def _bin(foretold: Floats) -> Rows:
    return np.clip(np.searchsorted(_EDGES, foretold, side="right") - 1, 0, _BINS - 1)
