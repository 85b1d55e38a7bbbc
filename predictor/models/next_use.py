"""When the next request for each model is due: a cumulative hazard on a fixed grid of delays.

Two forecasts are kept beside each other, a model's own gaps and the pool of all experts, and
each model believes whichever told its own recent past better. So the pool, which learns from
all models at once, cannot do harm to one of them for long. What is believed is set right at the
end by what came of such probabilities before.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from contracts.forecasts import NEXT_USE_GRID_S, ForecastStatus
from predictor.evaluation import UseScores
from predictor.models.decayed_rates import DecayedRates
from predictor.models.experts import ALONE, Experts
from predictor.models.pool import HazardPool
from predictor.models.reliability import Calibration, Reliability
from predictor.opinions import MIXTURE
from predictor.windows import Floats, Rows

Bools: TypeAlias = npt.NDArray[np.bool_]

POOLED = "pooled_hazard"
OWN_GAPS = "own_gaps"
BASE_RATE = "base_rate"

GRID_S: Floats = np.array(NEXT_USE_GRID_S)
MINUTE_S = 60.0
"""What forecasts are scored on."""
HALF_WINDOW_S = 30.0
"""What weights are learned on: half the time within which the planner values a use."""
_EVERY_S = 40.0
"""Between two looks: past the half window, and no divisor of the minute that cron lives by."""
_LOOKS: Floats = np.array([HALF_WINDOW_S, MINUTE_S, 300.0])
_HALF, _MINUTE, _FIVE_MINUTES = range(len(_LOOKS))
_LONG_EVERY = 5
"""Every so many looks one is kept for five minutes."""
_MAX_SAMPLES = 6
_POPULATION_S = 60.0
_READY_GAPS = 3.0
"""From here a model's own gaps outweigh the population's."""
_MEMORY_LOOKS = 500.0
"""Looks that decide between pool and own gaps: a few hours of them."""

_LEAST, _MOST = 1e-6, 13.8
"""No forecast is taken for more certain than one in a million."""


@dataclass(frozen=True, slots=True)
class CurveAccount:
    """What is known about one model's curve beside its numbers."""

    method: str
    status: ForecastStatus
    last_arrival_at_s: float | None
    brier: float | None
    floor_brier: float | None


@dataclass(slots=True)
class _Sample:
    """Forecasts that wait for their outcomes: within the half window, a minute, five minutes.

    ``raw`` (n, looks): hazards as they were believed; ``foretold``: probabilities as published.
    """

    made_s: float
    rows: Rows
    births: Rows
    contexts: Rows
    features: Floats
    own: Floats
    pooled: Floats
    raw: Floats
    foretold: Floats
    next_s: Floats
    looks: int
    done: int = 0


class NextUseForecaster:
    """Curves for each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    rates : DecayedRates
        Kept by the owner.
    without : sequence of str
        Names of experts that are not asked; Invalid where there is none of such a name.
    """

    def __init__(self, rows: int, rates: DecayedRates, without: Sequence[str] = ()) -> None:
        self._experts = Experts(rows, rates, without)
        self._pool = HazardPool()
        self._calibration = Calibration(_LOOKS)
        self._reliability = Reliability()
        self._looked = 0
        self._scores = UseScores(rows)
        self._last_s = np.full(rows, np.nan)
        self._births = np.zeros(rows, dtype=np.intp)
        self._pool_lead = np.zeros(rows)
        self._samples: deque[_Sample] = deque(maxlen=_MAX_SAMPLES)
        self._sampled_s = -math.inf
        self._period: int | None = None

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        self._experts.grow(rows)
        self._scores.grow(rows)
        more = rows - len(self._last_s)
        self._last_s = np.pad(self._last_s, (0, more), constant_values=np.nan)
        self._births = np.pad(self._births, (0, more))
        self._pool_lead = np.pad(self._pool_lead, (0, more))
        for sample in self._samples:
            sample.next_s = np.pad(sample.next_s, (0, more), constant_values=np.inf)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held; forecasts of it that wait for an outcome become void."""
        self._experts.clear(row)
        self._scores.clear(row)
        self._last_s[row] = np.nan
        self._births[row] += 1
        self._pool_lead[row] = 0.0

    def rewind(self, now_s: float) -> None:
        """The clock was set back: nothing came later than ``now_s``."""
        self._last_s = np.minimum(self._last_s, now_s)
        self._experts.rewind(now_s)
        self._samples.clear()
        self._sampled_s = -math.inf
        self._period = None

    def keep_to(self, utc_offset_s: float) -> None:
        """Clocks on the wall are so far ahead of UTC from now on."""
        self._experts.keep_to(utc_offset_s)

    def accounts(self, rows: Rows) -> list[CurveAccount]:
        """How the curve of each of ``rows`` is made, and how far it may be trusted."""
        ready = self._experts.gaps(rows) >= _READY_GAPS
        briers, floors = self._scores.briers(rows)
        columns = (
            self._scores.degraded(rows),
            self._pool_lead[rows] >= 0.0,
            ready,
            self._last_s[rows],
            briers,
            floors,
        )
        return [
            CurveAccount(
                method=BASE_RATE if degraded else POOLED if pooled else OWN_GAPS,
                status=ForecastStatus.DEGRADED
                if degraded
                else ForecastStatus.READY
                if is_ready
                else ForecastStatus.WARMING_UP,
                last_arrival_at_s=None if math.isnan(last_s) else last_s,
                brier=None if math.isnan(brier) else brier,
                floor_brier=None if math.isnan(floor) else floor,
            )
            for degraded, pooled, is_ready, last_s, brier, floor in zip(
                *(column.tolist() for column in columns), strict=True
            )
        ]

    @property
    def reliability_error(self) -> float | None:
        """How far what comes within a minute lies from what was foretold, at its worst."""
        return self._reliability.worst

    def arrive(self, row: int, at_s: float) -> tuple[int, ...]:
        """A request came for ``row``.

        Returns
        -------
        tuple of int
            Other rows that it lets expect, whose curves it has changed.
        """
        for sample in self._samples:
            if at_s >= sample.made_s:
                sample.next_s[row] = min(float(sample.next_s[row]), at_s)
        last_s = float(self._last_s[row])
        if at_s < last_s:
            self._experts.straggle(row, at_s)
            return ()
        self._last_s[row] = at_s
        return self._experts.arrive(row, at_s, None if math.isnan(last_s) else at_s - last_s)

    def advance(self, rows: Rows, now_s: float) -> None:
        """Renew what the models of ``rows`` share, and learn whom to believe.

        What happens at the very end of a look may be told after it: so it is settled later.
        """
        self._experts.advance(rows, now_s)
        period = math.floor(now_s / _POPULATION_S)
        if period != self._period:
            self._period = period
            self._experts.refresh_population(rows)
        for sample in self._samples:
            while sample.done < sample.looks and now_s > sample.made_s + _LOOKS[sample.done]:
                self._settle(sample, sample.done)
                sample.done += 1
        waiting = [sample for sample in self._samples if sample.done < sample.looks]
        if len(waiting) < len(self._samples):
            self._samples = deque(waiting, maxlen=_MAX_SAMPLES)
        if now_s >= self._sampled_s + _EVERY_S and len(rows) > 0:
            self._sampled_s = now_s
            self._samples.append(self._look(rows, now_s))
            self._looked += 1

    def curves(self, rows: Rows, now_s: float) -> Floats:
        """H on the grid for each of ``rows``, all of which have had an arrival.

        Returns
        -------
        (n, grid) array, finite, at least 0, never decreasing along the grid.
        """
        opinions = self._experts.opinions(rows, self._ages_s(rows, now_s), now_s, GRID_S)
        pooled = self._pool.hazard(opinions.features, opinions.base, opinions.contexts)
        return self._believed(rows, opinions.own, pooled, GRID_S)

    def opinions(self, rows: Rows, now_s: float) -> tuple[tuple[str, ...], Floats]:
        """Every method beside what is published; see ``UseOpinions``."""
        said = self._experts.opinions(rows, self._ages_s(rows, now_s), now_s, GRID_S)
        pooled = self._pool.hazard(said.features, said.base, said.contexts)
        alone = {name: np.exp(said.features[:, expert] + said.base) for name, expert in ALONE}
        per_s = -np.log1p(-self._scores.base_rate(rows)) / MINUTE_S
        by_method = {
            MIXTURE: self._believed(rows, said.own, pooled, GRID_S),
            POOLED: pooled,
            **alone,
            OWN_GAPS: said.own,
            BASE_RATE: per_s[:, None] * GRID_S,
        }
        hazards = np.maximum.accumulate(np.stack(list(by_method.values()), axis=1), axis=2)
        return tuple(by_method), hazards

    def _believed(self, rows: Rows, own: Floats, pooled: Floats, delays_s: Floats) -> Floats:
        """Own gaps and pool by what each model believes, or its base rate where both lose."""
        hazard = self._calibration.correct(_blend(pooled, own, self._pool_lead[rows]), delays_s)
        degraded = self._scores.degraded(rows)
        if degraded.any():
            per_s = -np.log1p(-self._scores.base_rate(rows[degraded])) / MINUTE_S
            hazard[degraded] = per_s[:, None] * delays_s
        return hazard

    def _ages_s(self, rows: Rows, now_s: float) -> Floats:
        return np.maximum(now_s - self._last_s[rows], 0.0)

    def _look(self, rows: Rows, now_s: float) -> _Sample:
        opinions = self._experts.opinions(rows, self._ages_s(rows, now_s), now_s, _LOOKS)
        pooled = self._pool.hazard(opinions.features, opinions.base, opinions.contexts)
        believed = _blend(pooled, opinions.own, self._pool_lead[rows])
        return _Sample(
            made_s=now_s,
            rows=rows,
            births=self._births[rows],
            contexts=opinions.contexts,
            features=opinions.features[:, :, 0],
            own=opinions.own[:, 0],
            pooled=pooled[:, 0],
            raw=believed,
            foretold=-np.expm1(-self._calibration.correct(believed, _LOOKS)),
            next_s=np.full(len(self._last_s), np.inf),
            looks=len(_LOOKS) if self._looked % _LONG_EVERY == 0 else _FIVE_MINUTES,
        )

    def _settle(self, sample: _Sample, look: int) -> None:
        same, came = self._outcomes(sample, float(_LOOKS[look]))
        self._calibration.learn(look, -np.expm1(-sample.raw[same, look]), came)
        if look == _HALF:
            self._learn(sample, same, came)
        elif look == _MINUTE:
            self._score(sample, same, came)

    def _learn(self, sample: _Sample, same: Bools, came: Bools) -> None:
        rows, pooled = sample.rows[same], sample.pooled[same]
        gained = _log_likelihood(pooled, came) - _log_likelihood(sample.own[same], came)
        fade = 1.0 - 1.0 / _MEMORY_LOOKS
        self._pool_lead[rows] = fade * self._pool_lead[rows] + gained
        self._pool.learn(sample.features[same], pooled, sample.contexts[same], came)

    def _score(self, sample: _Sample, same: Bools, within_minute: Bools) -> None:
        _, within_half = self._outcomes(sample, HALF_WINDOW_S)
        came = np.stack([within_half, within_minute], axis=1)
        self._scores.learn(sample.rows[same], sample.foretold[same, :_FIVE_MINUTES], came)
        self._reliability.learn(sample.foretold[same, _MINUTE], within_minute)

    def _outcomes(self, sample: _Sample, within_s: float) -> tuple[Bools, Bools]:
        """Which rows are still the same models, and of those, whether a request came in time."""
        same = self._births[sample.rows] == sample.births
        return same, sample.next_s[sample.rows[same]] <= sample.made_s + within_s


def _blend(pooled: Floats, own: Floats, lead: Floats) -> Floats:
    """Pool and own gaps, (n, delays), by the odds of their recent likelihoods, (n,)."""
    trust = (1.0 / (1.0 + np.exp(-np.clip(lead, -30.0, 30.0))))[:, None]
    hazard: Floats = pooled**trust * np.maximum(own, _LEAST) ** (1.0 - trust)
    return hazard


def _log_likelihood(hazard: Floats, came: Bools) -> Floats:
    """Of what came under each hazard, with no forecast taken for more certain than 1 in 10^6."""
    bounded = np.clip(hazard, _LEAST, _MOST)
    return np.where(came, np.log(-np.expm1(-bounded)), -bounded)
