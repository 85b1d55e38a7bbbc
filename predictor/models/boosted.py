"""The challenger as one more method: trees that were trained in a worker, asked once a minute."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Protocol

import numpy as np

from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.windows import Floats, Rows

METHOD = "boosted"
MINUTE_S = 60.0
_NEVER = -1
_LOW, _MIDDLE, _HIGH = (QUANTILE_LEVELS.index(level) for level in (0.1, 0.5, 0.9))

Minutes = Callable[[Rows, float, int], Floats]
"""Counts of so many whole minutes up to a time; (n, minutes), not a number where missing."""


class Challenger(Protocol):
    """What was trained, or anything that says the like."""

    @property
    def minutes_needed(self) -> int:
        """Minutes of history that it looks at."""
        ...

    def quantiles(self, minutes: Floats, end_s: float) -> Floats:
        """(n, minutes) counts, the last ending at ``end_s``: (n, horizons, levels) counts."""
        ...


class Boosted:
    """Keeps what the challenger said of each row in this minute.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    def __init__(self, rows: int) -> None:
        self._challenger: Challenger | None = None
        self._minute = np.full(rows, _NEVER, dtype=np.int64)
        self._said = np.full((rows, len(HORIZONS_S), len(QUANTILE_LEVELS)), np.nan)

    def take(self, challenger: Challenger | None) -> None:
        """Ask this one from now on; None: nobody."""
        self._challenger = challenger
        self._minute[:] = _NEVER

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._minute)
        self._minute = np.pad(self._minute, (0, more), constant_values=_NEVER)
        self._said = np.pad(self._said, ((0, more), (0, 0), (0, 0)), constant_values=np.nan)

    def clear(self, row: int) -> None:
        """Forget what was said of ``row``."""
        self._minute[row] = _NEVER

    def quantiles(self, rows: Rows, made_s: float, minutes: Minutes) -> Floats:
        """Counts at ``QUANTILE_LEVELS``, (n, horizons, levels); not a number without an opinion.

        What was said at the start of a minute holds to its end.
        """
        challenger = self._challenger
        if challenger is None:
            return np.full((len(rows), *self._said.shape[1:]), np.nan)
        minute = math.floor(made_s / MINUTE_S)
        stale = rows[self._minute[rows] != minute]
        if len(stale):
            end_s = minute * MINUTE_S
            said = challenger.quantiles(minutes(stale, end_s, challenger.minutes_needed), end_s)
            sound = np.isfinite(said).all(axis=2, keepdims=True)
            ordered = np.maximum.accumulate(np.maximum(np.nan_to_num(said), 0.0), axis=2)
            self._said[stale] = np.where(sound, ordered, np.nan)
            self._minute[stale] = minute
        return self._said[rows]

    def expected(self, rows: Rows, made_s: float, minutes: Minutes) -> Floats:
        """Mean counts, (n, horizons); see ``mean_of``."""
        return mean_of(self.quantiles(rows, made_s, minutes))


def mean_of(quantiles: Floats) -> Floats:
    """A mean from quantiles 0.1, 0.5 and 0.9: .3, .4 and .3 of them (Pearson and Tukey 1965)."""
    mean: Floats = (
        0.3 * quantiles[..., _LOW] + 0.4 * quantiles[..., _MIDDLE] + 0.3 * quantiles[..., _HIGH]
    )
    return mean
