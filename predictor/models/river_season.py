"""River's Holt-Winters per model: level, trend and a day of quarter hours, in roots of counts.

It has no opinion before a whole day is known, and takes its own forecast for a slot that nobody
watched, so that its day stays in step with the clock. Where that is for too long, or anything
is not finite, it starts afresh.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from river import time_series

from contracts.forecasts import HORIZONS_S
from predictor.models.count_quantiles import from_root, to_root
from predictor.windows import CountWindow, Floats, Rows

METHOD = "holt_winters"

SLOT_S = 900.0
SLOTS = 96
_AHEAD = round(HORIZONS_S[-1] / SLOT_S) + 1
_LEVEL, _TREND, _SEASON = 0.2, 0.01, 0.2
_LONGEST_GAP = SLOTS
"""Slots that it goes on by itself."""
_BEYOND_SEEN = 1.5
_HOLT_WINTERS: Any = time_series.HoltWinters


def fresh_season() -> Any:
    """One that has learned nothing."""
    # Any: River's estimators carry no types.
    return _HOLT_WINTERS(alpha=_LEVEL, beta=_TREND, gamma=_SEASON, seasonality=SLOTS)


class RiverSeason:
    """One Holt-Winters for each row, made when there is something to learn.

    Attributes
    ----------
    resets : int
        How often one had to be started afresh.
    """

    def __init__(self, rows: int) -> None:
        self._models: list[Any | None] = [None] * rows
        self._learned = np.zeros(rows, dtype=np.int64)
        self._gap = np.zeros(rows, dtype=np.int64)
        self._largest = np.zeros(rows)
        self._ahead = np.full((rows, _AHEAD), np.nan)
        self._slot: int | None = None
        self.resets = 0

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._models)
        self._models.extend([None] * more)
        self._learned = np.pad(self._learned, (0, more))
        self._gap = np.pad(self._gap, (0, more))
        self._largest = np.pad(self._largest, (0, more))
        self._ahead = np.pad(self._ahead, ((0, more), (0, 0)), constant_values=np.nan)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._models[row] = None
        self._learned[row] = self._gap[row] = 0
        self._largest[row] = 0.0
        self._ahead[row] = np.nan

    def rewind(self) -> None:
        """The clock was set back: the next look only finds out where it stands."""
        self._slot = None

    def advance(self, recent: CountWindow, rows: Rows, now_s: float) -> None:
        """Learn the slots that have ended by ``now_s``."""
        slot = math.floor(now_s / SLOT_S)
        if self._slot is None or slot < self._slot or slot > self._slot + _LONGEST_GAP:
            if self._slot is not None:
                for row in rows.tolist():
                    self.clear(row)
            self._slot = slot
        for ended in range(self._slot, slot):
            counts = recent.totals(rows, (ended + 1) * SLOT_S, SLOT_S)
            roots = np.where(np.isfinite(counts), to_root(counts), np.nan)
            for row, root in zip(rows.tolist(), roots.tolist(), strict=True):
                self._learn(row, root)
        self._slot = slot

    def expected(self, rows: Rows, now_s: float) -> Floats:
        """Mean counts within each horizon; not a number before a day is known; (n, horizons)."""
        slots = from_root(self._ahead[rows])
        into = (now_s / SLOT_S) % 1.0
        found = np.empty((len(rows), len(HORIZONS_S)))
        for column, horizon_s in enumerate(HORIZONS_S):
            end = into + horizon_s / SLOT_S
            whole = np.arange(math.ceil(end))
            covered = np.minimum(whole + 1.0, end) - np.maximum(whole, into)
            found[:, column] = slots[:, whole] @ covered
        return np.where(np.isfinite(self._ahead[rows, :1]), found, np.nan)

    def _learn(self, row: int, root: float) -> None:
        model = self._models[row]
        if math.isnan(root):
            if model is None:
                return
            root = float(self._ahead[row, 0])
            self._gap[row] += 1
            if math.isnan(root) or self._gap[row] > _LONGEST_GAP:
                self.clear(row)
                return
        else:
            self._gap[row] = 0
            self._largest[row] = max(self._largest[row], root)
        if model is None:
            model = self._models[row] = fresh_season()
        model.learn_one(root)
        self._learned[row] += 1
        if self._learned[row] < SLOTS:
            return
        ahead = model.forecast(_AHEAD)
        if not all(map(math.isfinite, ahead)):
            self.resets += 1
            self.clear(row)
            return
        highest = _BEYOND_SEEN * max(self._largest[row], 1.0)
        self._ahead[row] = [min(max(value, 0.0), highest) for value in ahead]
