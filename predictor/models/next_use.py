"""When the next request for each model is due: a cumulative hazard on a fixed grid of delays."""

from __future__ import annotations

import numpy as np

from contracts.forecasts import NEXT_USE_GRID_S
from predictor.models.gap_hazard import Floats, GapHazard, Rows

GRID_S: Floats = np.array(NEXT_USE_GRID_S)
LATE_LIMIT_S = 60.0
"""An arrival older than the newest by more than this is no straggler: the clock was set back."""


class NextUseForecaster:
    """Curves for the models in rows 0 to ``rows - 1``.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

    method = "own_gaps"

    def __init__(self, rows: int) -> None:
        self._gaps = GapHazard(rows)
        self._last_s = np.full(rows, np.nan)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        self._gaps.grow(rows)
        more = rows - len(self._last_s)
        self._last_s = np.pad(self._last_s, (0, more), constant_values=np.nan)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._gaps.clear(row)
        self._last_s[row] = np.nan

    def last_arrival_s(self, row: int) -> float | None:
        """The newest arrival of ``row``, or None."""
        last_s = float(self._last_s[row])
        return None if np.isnan(last_s) else last_s

    def gaps(self, row: int) -> float:
        """How many gaps ``row`` has seen, faded."""
        return self._gaps.gaps(row)

    def arrive(self, row: int, at_s: float) -> None:
        """A request came for ``row``."""
        last_s = self.last_arrival_s(row)
        if last_s is not None and last_s - LATE_LIMIT_S <= at_s < last_s:
            return
        if last_s is not None and at_s >= last_s:
            self._gaps.learn(row, at_s - last_s)
        self._last_s[row] = at_s

    def refresh(self, rows: Rows) -> None:
        """Renew what the models of ``rows`` share."""
        self._gaps.refresh_population(rows)

    def curves(self, rows: Rows, now_s: float) -> Floats:
        """H on the grid for each of ``rows``, all of which have had an arrival."""
        ages_s = np.maximum(now_s - self._last_s[rows], 0.0)
        return self._gaps.cumulative(rows, ages_s, GRID_S)
