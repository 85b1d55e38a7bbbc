"""Arrivals per second that forget: one rate per time scale, the last minute to the last day."""

from __future__ import annotations

import numpy as np

from predictor.windows import Floats, Rows

SCALES_S: Floats = np.array([60.0, 600.0, 3600.0, 6 * 3600.0, 86_400.0])
"""A burst, a session, an hour, a part of the day, a day: about six times apart each."""

_VAGUE_S = 1800.0
"""Before anything is known, one more request is as likely as not within half an hour or so."""


class DecayedRates:
    """Exponentially forgetting counts for each row and time scale.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._counts = np.zeros((rows, len(SCALES_S)))
        self._at_s = np.zeros(rows)
        self._first_s = np.full(rows, np.nan)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._at_s)
        self._counts = np.pad(self._counts, ((0, more), (0, 0)))
        self._at_s = np.pad(self._at_s, (0, more))
        self._first_s = np.pad(self._first_s, (0, more), constant_values=np.nan)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._counts[row] = 0.0
        self._first_s[row] = np.nan

    def add(self, row: int, at_s: float) -> None:
        """Count one arrival. One from the past counts as if it came with the newest."""
        if np.isnan(self._first_s[row]):
            self._first_s[row] = self._at_s[row] = at_s
        passed_s = max(0.0, at_s - float(self._at_s[row]))
        self._counts[row] = self._counts[row] * np.exp(-passed_s / SCALES_S) + 1.0
        self._at_s[row] += passed_s

    def rewind(self, now_s: float) -> None:
        """The clock was set back to ``now_s``: nothing is newer than that."""
        self._at_s = np.minimum(self._at_s, now_s)
        self._first_s = np.fmin(self._first_s, now_s) + 0.0 * self._first_s

    def per_s(self, rows: Rows, now_s: float) -> Floats:
        """Rates of ``rows``, slowest scale last.

        Each scale leans on the next slower one where little of it is known, and the slowest
        on a vague guess, so that every rate is positive and a new model's is no zero.

        Returns
        -------
        (n, scales) array.
        """
        passed_s = np.maximum(now_s - self._at_s[rows], 0.0)[:, None]
        known_s = np.maximum(now_s - self._first_s[rows], 0.0)[:, None]
        counts = self._counts[rows] * np.exp(-passed_s / SCALES_S)
        lengths_s = -SCALES_S * np.expm1(-known_s / SCALES_S)
        rates = np.empty_like(counts)
        slower = (counts[:, -1] + 0.5) / (lengths_s[:, -1] + _VAGUE_S)
        rates[:, -1] = slower
        for scale in range(len(SCALES_S) - 2, -1, -1):
            # One imagined arrival at the slower rate.
            slower = (counts[:, scale] + 1.0) / (lengths_s[:, scale] + 1.0 / slower)
            rates[:, scale] = slower
        return rates
