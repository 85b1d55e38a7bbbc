"""When the next request for each model is due: a cumulative hazard on a fixed grid of delays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from contracts.forecasts import NEXT_USE_GRID_S, ForecastStatus
from predictor.models.gap_hazard import GapHazard
from predictor.windows import Floats, Rows

GRID_S: Floats = np.array(NEXT_USE_GRID_S)

_READY_GAPS = 3.0
"""From here a model's own gaps outweigh the population's."""


@dataclass(frozen=True, slots=True)
class CurveAccount:
    """What is known about one model's curve beside its numbers."""

    method: str
    status: ForecastStatus
    last_arrival_at_s: float | None
    brier: float | None
    floor_brier: float | None


class NextUseForecaster:
    """Curves for each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    """

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

    def rewind(self, now_s: float) -> None:
        """The clock was set back: nothing came later than ``now_s``."""
        self._last_s = np.minimum(self._last_s, now_s)

    def last_arrival_s(self, row: int) -> float | None:
        """The newest arrival of ``row``, or None."""
        last_s = float(self._last_s[row])
        return None if math.isnan(last_s) else last_s

    def account(self, row: int) -> CurveAccount:
        """How the curve of ``row`` is made, and how far it may be trusted."""
        ready = self._gaps.gaps(row) >= _READY_GAPS
        return CurveAccount(
            method="own_gaps",
            status=ForecastStatus.READY if ready else ForecastStatus.WARMING_UP,
            last_arrival_at_s=self.last_arrival_s(row),
            brier=None,
            floor_brier=None,
        )

    def arrive(self, row: int, at_s: float) -> None:
        """A request came for ``row``. A straggler changes nothing: its gap is split already."""
        last_s = self.last_arrival_s(row)
        if last_s is not None:
            if at_s < last_s:
                return
            self._gaps.learn(row, at_s - last_s)
        self._last_s[row] = at_s

    def advance(self, rows: Rows, now_s: float) -> None:  # noqa: ARG002
        """Renew what the models of ``rows`` share."""
        self._gaps.refresh_population(rows)

    def curves(self, rows: Rows, now_s: float) -> Floats:
        """H on the grid for each of ``rows``, all of which have had an arrival."""
        ages_s = np.maximum(now_s - self._last_s[rows], 0.0)
        return self._gaps.cumulative(rows, ages_s, GRID_S)
