"""When the next request for each model is due: a cumulative hazard on a fixed grid of delays."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contracts.forecasts import NEXT_USE_GRID_S, ForecastStatus
from predictor.models.decayed_rates import SCALES_S, DecayedRates
from predictor.models.gap_hazard import GapHazard
from predictor.models.hour_slots import HourSlots
from predictor.models.pool import HazardPool
from predictor.windows import Floats, Rows

GRID_S: Floats = np.array(NEXT_USE_GRID_S)
_READY_GAPS = 3.0
"""From here a model's own gaps outweigh the population's."""
_HALF_WINDOW_S = 30.0
"""Weights are learned on "a request within half the planner's window": what it decides by."""
_JUST_USED_S = 60.0
"""Within a minute of a request other experts are right than in a long silence."""
_POPULATION_S = 60.0
_EXPERTS = 2 + len(SCALES_S)
_PRIOR_WEIGHTS: Floats = np.array([0.0, 1.0] + [0.0] * (_EXPERTS - 2))
_PRIOR_PRECISION: Floats = np.array([10.0, 4.0] + [4.0] * (_EXPERTS - 2))
_POOL_MEMORY = 2000.0
_TINY = 1e-6


@dataclass(frozen=True, slots=True)
class CurveAccount:
    """What is known about one model's curve beside its numbers."""

    method: str
    status: ForecastStatus
    last_arrival_at_s: float | None
    brier: float | None
    floor_brier: float | None


@dataclass(frozen=True, slots=True)
class _Sample:
    """Forecasts that wait for their outcome."""

    made_s: float
    rows: Rows
    births: Rows
    features: Floats
    base: Floats
    contexts: Rows


class NextUseForecaster:
    """Curves for each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    rates : DecayedRates
        Kept by the owner.
    """

    def __init__(self, rows: int, rates: DecayedRates) -> None:
        self._rates = rates
        self._gaps = GapHazard(rows)
        self._slots = HourSlots(rows)
        self.pool = HazardPool(
            np.stack([_PRIOR_WEIGHTS, _PRIOR_WEIGHTS]), _PRIOR_PRECISION, memory=_POOL_MEMORY
        )
        self._last_s = np.full(rows, np.nan)
        self._next_s = np.full(rows, np.inf)
        self._births = np.zeros(rows, dtype=np.intp)
        self._sample: _Sample | None = None
        self._population_s = -math.inf

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        self._gaps.grow(rows)
        self._slots.grow(rows)
        more = rows - len(self._last_s)
        self._last_s = np.pad(self._last_s, (0, more), constant_values=np.nan)
        self._next_s = np.pad(self._next_s, (0, more), constant_values=np.inf)
        self._births = np.pad(self._births, (0, more))

    def clear(self, row: int) -> None:
        """Forget what ``row`` held."""
        self._gaps.clear(row)
        self._slots.clear(row)
        self._last_s[row] = np.nan
        self._births[row] += 1

    def rewind(self, now_s: float) -> None:
        """The clock was set back: nothing came later than ``now_s``."""
        self._last_s = np.minimum(self._last_s, now_s)
        self._slots.rewind(now_s)
        self._sample = None
        self._population_s = -math.inf

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
        self._slots.add(row, at_s)
        self._next_s[row] = min(float(self._next_s[row]), at_s)
        last_s = self.last_arrival_s(row)
        if last_s is not None:
            if at_s < last_s:
                return
            self._gaps.learn(row, at_s - last_s)
        self._last_s[row] = at_s

    def advance(self, rows: Rows, now_s: float) -> None:
        """Renew what the models of ``rows`` share, and learn whom to believe."""
        self._slots.advance(now_s)
        if now_s >= self._population_s + _POPULATION_S:
            self._population_s = now_s
            self._gaps.refresh_population(rows)
        if self._sample is None:
            self._begin_sample(rows, now_s)
        elif now_s >= self._sample.made_s + _HALF_WINDOW_S:
            self._settle(self._sample)
            self._sample = None

    def curves(self, rows: Rows, now_s: float) -> Floats:
        """H on the grid for each of ``rows``, all of which have had an arrival."""
        own, slots, rates, contexts = self._experts(rows, now_s, GRID_S)
        weights = self.pool.weights[contexts][:, :, None]
        base = np.log(rates[:, -1:] * GRID_S)
        pooled = (
            base
            + weights[:, 0]
            + weights[:, 1] * (_log(own) - base)
            + weights[:, 2] * (_log(slots) - base)
            + np.einsum("ns,ns->n", weights[:, 3:, 0], np.log(rates[:, :-1] / rates[:, -1:]))[
                :, None
            ]
        )
        hazard: Floats = np.maximum.accumulate(np.exp(np.clip(pooled, -14.0, 3.0)), axis=1)
        return hazard

    def _experts(
        self, rows: Rows, now_s: float, delays_s: Floats
    ) -> tuple[Floats, Floats, Floats, Rows]:
        ages_s = np.maximum(now_s - self._last_s[rows], 0.0)
        own = self._gaps.cumulative(rows, ages_s, delays_s)
        slots = self._slots.cumulative(rows, now_s, delays_s)
        rates = self._rates.per_s(rows, now_s)
        return own, slots, rates, (ages_s < _JUST_USED_S).astype(np.intp)

    def _begin_sample(self, rows: Rows, now_s: float) -> None:
        if len(rows) == 0:
            return
        own, slots, rates, contexts = self._experts(rows, now_s, np.array([_HALF_WINDOW_S]))
        base = np.log(rates[:, -1] * _HALF_WINDOW_S)
        features = np.column_stack(
            [
                np.ones(len(rows)),
                _log(own[:, 0]) - base,
                _log(slots[:, 0]) - base,
                np.log(rates[:, :-1] / rates[:, -1:]),
            ]
        )
        self._next_s[rows] = np.inf
        self._sample = _Sample(now_s, rows, self._births[rows], features, base, contexts)

    def _settle(self, sample: _Sample) -> None:
        same = self._births[sample.rows] == sample.births
        came: npt.NDArray[np.bool_] = self._next_s[sample.rows] <= sample.made_s + _HALF_WINDOW_S
        self.pool.learn(sample.features[same], sample.base[same], sample.contexts[same], came[same])


def _log(hazard: Floats) -> Floats:
    logs: Floats = np.log(np.maximum(hazard, _TINY))
    return logs
