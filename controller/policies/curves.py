"""Next-use curves of many models as one matrix, so that all of them are asked at once.

A row is renewed when its forecast is another object than before; what a curve says at a later
moment than it was made follows by shifting along it, as ``NextUse.probability_between`` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from contracts.forecasts import NEXT_USE_GRID_S, Forecasts, ForecastStatus, NextUse
from contracts.ids import ModelId

Floats: TypeAlias = npt.NDArray[np.float64]
Rows: TypeAlias = npt.NDArray[np.intp]

_GRID_S: Floats = np.array((0.0, *NEXT_USE_GRID_S))
_LAST = len(_GRID_S) - 2
_FIRST_ROWS = 64


class CurveBoard:
    """The curves of the models that were asked about, by row.

    It holds nothing that is not in the forecasts: only what need not be derived again.
    """

    def __init__(self) -> None:
        self._rows: dict[ModelId, int] = {}
        self._curves: list[NextUse | None] = []
        self._hazards = np.zeros((_FIRST_ROWS, len(_GRID_S)))
        self._made_s = np.zeros(_FIRST_ROWS)
        self._until_s = np.full(_FIRST_ROWS, -math.inf)
        self._degraded = np.zeros(_FIRST_ROWS, dtype=bool)

    def rows(self, models: Sequence[ModelId], forecasts: Forecasts) -> Rows:
        """Where the curves of ``models`` are, after those that have changed were renewed."""
        if len(self._rows) > 2 * len(models) + len(forecasts) + _FIRST_ROWS:
            self._rows.clear()  # most of them are of models that are gone
            self._curves.clear()
        found, stale = [], []
        rows, curves = self._rows, self._curves
        for model in models:
            row = rows.get(model, -1)
            forecast = forecasts.get(model)
            curve = None if forecast is None else forecast.next_use
            if row < 0:
                row = rows[model] = len(curves)
                curves.append(None)
                stale.append(row)
                curves[row] = curve
            elif curves[row] is not curve:
                stale.append(row)
                curves[row] = curve
            found.append(row)
        if stale:
            self._renew(stale)
        return np.array(found, dtype=np.intp)

    def usable(self, rows: Rows, now_s: float) -> npt.NDArray[np.bool_]:
        """Which of the curves may be used now: not missing or expired.

        One that is degraded is its model's base rate, so it tells how often and not when.
        """
        usable: npt.NDArray[np.bool_] = now_s < self._until_s[rows]
        return usable

    def timely(self, rows: Rows, now_s: float) -> npt.NDArray[np.bool_]:
        """Which of them tell when: usable and not degraded."""
        timely: npt.NDArray[np.bool_] = self.usable(rows, now_s) & ~self._degraded[rows]
        return timely

    def probability(
        self, rows: Rows, now_s: float, start_s: Floats | float, end_s: Floats | float
    ) -> Floats:
        """P(at least one request in [now + start, now + end]) for each row; 0 without a curve."""
        elapsed_s = np.maximum(now_s - self._made_s[rows], 0.0)
        hazard = self._within(rows, elapsed_s + end_s) - self._within(rows, elapsed_s + start_s)
        probability: Floats = -np.expm1(-np.maximum(hazard, 0.0))
        return probability

    def _within(self, rows: Rows, delays_s: Floats) -> Floats:
        """Linear between grid points, flat past the last."""
        bounded = np.minimum(delays_s, _GRID_S[-1])
        left = np.minimum(np.searchsorted(_GRID_S, bounded, side="right") - 1, _LAST)
        below, above = self._hazards[rows, left], self._hazards[rows, left + 1]
        share = (bounded - _GRID_S[left]) / (_GRID_S[left + 1] - _GRID_S[left])
        within: Floats = below + (above - below) * share
        return within

    def _renew(self, stale: list[int]) -> None:
        self._make_room()
        known = []
        for row in stale:
            curve = self._curves[row]
            if curve is None:
                self._until_s[row] = -math.inf
                self._hazards[row] = 0.0
            else:
                known.append(row)
        if known:
            curves = [curve for curve in (self._curves[row] for row in known) if curve is not None]
            self._hazards[known, 1:] = [curve.cumulative_hazard for curve in curves]
            self._made_s[known] = [curve.made_at_s for curve in curves]
            self._until_s[known] = [curve.expires_at_s for curve in curves]
            self._degraded[known] = [curve.status is ForecastStatus.DEGRADED for curve in curves]

    def _make_room(self) -> None:
        more = len(self._curves) - len(self._made_s)
        if more > 0:
            more = max(more, len(self._made_s))
            self._hazards = np.pad(self._hazards, ((0, more), (0, 0)))
            self._made_s = np.pad(self._made_s, (0, more))
            self._until_s = np.pad(self._until_s, (0, more), constant_values=-math.inf)
            self._degraded = np.pad(self._degraded, (0, more))
