"""How many requests come within 1, 5, 15 and 60 minutes: the regression and its floor together.

Forecasts are made from whole 10 s buckets. Each is kept until its horizon has passed, scored,
and only then learned from. A horizon makes at most five of them per its own length, since
outcomes that overlap say little that is new: so what waits for its outcome is bounded.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.evaluation import (
    FLOOR,
    FORECASTERS,
    LAST_VALUE,
    RIVER,
    SEASONAL,
    ArrivalScores,
)
from predictor.models import naive, river_rate
from predictor.models.day_profile import DayProfile
from predictor.models.decayed_rates import SCALES_S, DecayedRates
from predictor.models.intervals import ResidualQuantiles, to_root
from predictor.models.river_rate import RiverRate
from predictor.opinions import MIXTURE
from predictor.windows import CountWindow, Floats, Rows

BUCKET_S = 10.0
MINUTE_S = 60.0
_RECENT_BUCKETS = 432
"""72 minutes: the longest horizon, and a fifth of it until its outcome is looked at."""
_MINUTES = 24 * 60 + 62
"""A day and the longest horizon."""
_STRIDES_S = tuple(max(MINUTE_S, horizon_s / 5.0) for horizon_s in HORIZONS_S)
_MAX_PENDING = 8
_HOUR_S = 3600.0
_WEEK_S = 7 * naive.DAY_S
_RATE_SCALES = slice(1, len(SCALES_S))
_MEAN_SCALE = 2
"""The hour's rate stands in for counts of a model that is younger than a horizon."""

FEATURES: tuple[str, ...] = (
    *(f"last_{round(horizon_s)}_s" for horizon_s in HORIZONS_S),
    *(f"day_ago_{round(horizon_s)}_s" for horizon_s in HORIZONS_S),
    *(f"profile_{round(horizon_s)}_s" for horizon_s in HORIZONS_S),
    *(f"rate_{round(scale_s)}_s" for scale_s in SCALES_S[_RATE_SCALES].tolist()),
    "hour_sin",
    "hour_cos",
    "day_sin",
    "day_cos",
    "week_sin",
    "week_cos",
)


@dataclass(frozen=True, slots=True)
class _Pending:
    made_s: float
    rows: Rows
    births: Rows
    features: Floats
    bases: Floats
    roots: Floats
    quantiles: Floats


@dataclass(frozen=True, slots=True)
class DemandForecasts:
    """For n models: everything that is published about their arrivals; arrays by row."""

    means: Floats
    quantiles: Floats
    chosen: Rows
    """Whose numbers these are; see ``METHODS``."""
    ready: npt.NDArray[np.bool_]
    degraded: npt.NDArray[np.bool_]
    losses: Floats
    floor_losses: Floats
    coverage: Floats


class DemandForecaster:
    """Counts, learns and forecasts arrivals for each row.

    Parameters
    ----------
    rows : int
        Models that there is room for; ``grow`` makes more.
    rates : DecayedRates
        Kept by the owner.
    """

    def __init__(self, rows: int, rates: DecayedRates) -> None:
        self._rates = rates
        self._recent = CountWindow(width_s=BUCKET_S, buckets=_RECENT_BUCKETS, rows=rows)
        self._minutes = CountWindow(width_s=MINUTE_S, buckets=_MINUTES, rows=rows)
        self._profile = DayProfile(rows)
        self._river: list[RiverRate] = [RiverRate() for _ in range(rows)]
        self._births = np.zeros(rows, dtype=np.intp)
        self._scores = ArrivalScores(rows)
        self._residuals = [
            [ResidualQuantiles(rows) for _ in range(SEASONAL + 1)] for _ in HORIZONS_S
        ]
        self._pending: list[deque[_Pending]] = [deque(maxlen=_MAX_PENDING) for _ in HORIZONS_S]
        self._due_s = [-math.inf for _ in HORIZONS_S]

    @property
    def too_late(self) -> int:
        """Arrivals that came after their time was forgotten, so far."""
        return self._minutes.too_late

    @property
    def resets(self) -> int:
        """How often regressions had to be started afresh."""
        return sum(river.resets for river in self._river)

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._river)
        self._recent.grow(rows)
        self._minutes.grow(rows)
        self._profile.grow(rows)
        self._river.extend(RiverRate() for _ in range(more))
        self._births = np.pad(self._births, (0, more))
        self._scores.grow(rows)
        for by_forecaster in self._residuals:
            for residuals in by_forecaster:
                residuals.grow(rows)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held; forecasts of it that wait for an outcome become void."""
        self._recent.clear(row)
        self._minutes.clear(row)
        self._profile.clear(row)
        self._river[row] = RiverRate()
        self._births[row] += 1
        self._scores.clear(row)
        for by_forecaster in self._residuals:
            for residuals in by_forecaster:
                residuals.clear(row)

    def add(self, row: int, at_s: float) -> None:
        """A request came for ``row``."""
        self._recent.add(row, at_s)
        self._minutes.add(row, at_s)

    def rewind(self, now_s: float) -> None:
        """The clock was set back."""
        self._recent.rewind(now_s)
        self._minutes.rewind(now_s)
        self._profile.rewind()
        for pending in self._pending:
            pending.clear()
        self._due_s = [-math.inf for _ in HORIZONS_S]

    def advance(self, rows: Rows, now_s: float, *, watched: bool) -> None:
        """Score and learn what is complete by now, and make the forecasts that are due."""
        self._recent.advance(now_s, watched=watched)
        self._minutes.advance(now_s, watched=watched)
        made_s = _whole(now_s)
        self._profile.advance(self._recent, rows, made_s)
        due = [horizon for horizon, due_s in enumerate(self._due_s) if made_s >= due_s]
        for horizon, pending in enumerate(self._pending):
            while pending and pending[0].made_s + HORIZONS_S[horizon] <= made_s:
                self._settle(horizon, pending.popleft())
        if not due or len(rows) == 0:
            return
        features, bases, roots = self._roots(rows, made_s, see=True)
        for horizon in due:
            self._due_s[horizon] = made_s + _STRIDES_S[horizon]
            self._pending[horizon].append(
                _Pending(
                    made_s=made_s,
                    rows=rows,
                    births=self._births[rows],
                    features=features,
                    bases=bases[:, horizon],
                    roots=roots[:, :, horizon],
                    quantiles=self._quantiles(rows, roots, horizon),
                )
            )

    def forecast(self, rows: Rows, now_s: float) -> DemandForecasts:
        """What is expected from the last whole bucket before ``now_s``."""
        _, _, roots = self._roots(rows, _whole(now_s), see=False)
        ready, degraded = self._scores.ready(rows), self._scores.degraded(rows)
        use_river = ready & ~degraded & np.isfinite(roots[:, RIVER])
        floor = self._floor(rows, roots)
        chosen = np.where(use_river, RIVER, floor)
        means, quantiles = [], []
        for horizon in range(len(HORIZONS_S)):
            which = chosen[:, horizon]
            by_forecaster = self._quantiles(rows, roots, horizon)
            quantiles.append(by_forecaster[np.arange(len(rows)), which])
            expected = [
                residuals.means(rows, roots[:, forecaster, horizon])
                for forecaster, residuals in enumerate(self._residuals[horizon])
            ]
            means.append(np.stack(expected, axis=1)[np.arange(len(rows)), which])
        return DemandForecasts(
            means=np.stack(means, axis=1),
            quantiles=np.stack(quantiles, axis=1),
            chosen=chosen,
            ready=ready,
            degraded=degraded,
            losses=self._scores.mean_loss(rows, RIVER),
            floor_losses=self._scores.mean_loss(rows, FLOOR),
            coverage=self._scores.coverage(rows),
        )

    def opinions(self, rows: Rows, now_s: float) -> tuple[tuple[str, ...], Floats, Floats]:
        """Every method beside what is published; see ``ArrivalOpinions``."""
        published = self.forecast(rows, now_s)
        _, _, roots = self._roots(rows, _whole(now_s), see=False)
        quantiles = np.stack(
            [self._quantiles(rows, roots, horizon) for horizon in range(len(HORIZONS_S))], axis=2
        )[:, :FLOOR]
        means = np.stack(
            [
                np.stack(
                    [
                        residuals.means(rows, roots[:, forecaster, horizon])
                        for forecaster, residuals in enumerate(by_forecaster)
                    ],
                    axis=1,
                )
                for horizon, by_forecaster in enumerate(self._residuals)
            ],
            axis=2,
        )
        return (
            (MIXTURE, *(METHODS[forecaster] for forecaster in range(FLOOR))),
            np.concatenate([published.means[:, None], means], axis=1),
            np.concatenate([published.quantiles[:, None], quantiles], axis=1),
        )

    def _settle(self, horizon: int, pending: _Pending) -> None:
        length_s = HORIZONS_S[horizon]
        outcomes = self._recent.totals(pending.rows, pending.made_s + length_s, length_s)
        valid = np.isfinite(outcomes) & (self._births[pending.rows] == pending.births)
        if not valid.any():
            return
        rows, outcomes = pending.rows[valid], outcomes[valid]
        roots, features = pending.roots[valid], pending.features[valid]
        quantiles = pending.quantiles[valid]
        # Where the regression had no opinion its place is taken by the floor: no credit, no blame.
        mute = ~np.isfinite(roots[:, RIVER])
        quantiles[mute, RIVER] = quantiles[mute, FLOOR]
        self._scores.learn(rows, horizon, quantiles, outcomes)
        for forecaster, residuals in enumerate(self._residuals[horizon]):
            spoke = np.isfinite(roots[:, forecaster])
            residuals.learn(rows[spoke], roots[spoke, forecaster], outcomes[spoke])
        targets = to_root(outcomes)
        for row, values, base, target in zip(
            rows.tolist(),
            features.tolist(),
            pending.bases[valid].tolist(),
            targets.tolist(),
            strict=True,
        ):
            self._river[row].learn(dict(zip(FEATURES, values, strict=True)), horizon, base, target)

    def _roots(self, rows: Rows, made_s: float, *, see: bool) -> tuple[Floats, Floats, Floats]:
        """Features (n, features), and in roots: what the regression starts from (n, horizons),
        and all forecasts (n, RIVER to SEASONAL, horizons).
        """
        rates = self._rates.per_s(rows, made_s)
        last = naive.last_value(self._recent, rows, made_s, rates[:, _MEAN_SCALE])
        seasonal = naive.seasonal(self._minutes, rows, made_s)
        day_ago = np.where(np.isnan(seasonal), last, seasonal)
        profile = self._profile.expected(rows, made_s, np.array(HORIZONS_S))
        # Where days repeat, the regression has only to learn how far today lies from the others.
        steady = to_root(rates[:, _MEAN_SCALE, None] * np.array(HORIZONS_S))
        repeats = self._scores.prefers_seasonal(rows) & np.isfinite(profile)
        bases = np.where(repeats, to_root(profile), steady)
        angles = 2.0 * np.pi * made_s / np.array([_HOUR_S, naive.DAY_S, _WEEK_S])
        calendar = np.ravel(np.column_stack([np.sin(angles), np.cos(angles)]))
        features = np.concatenate(
            [
                to_root(last),
                to_root(day_ago),
                to_root(np.where(np.isnan(profile), day_ago, profile)),
                to_root(rates[:, _RATE_SCALES] * HORIZONS_S[-1]),
                np.tile(calendar, (len(rows), 1)),
            ],
            axis=1,
        )
        river = self._river_roots(rows, features, bases, see=see)
        return features, bases, np.stack([river, to_root(last), to_root(seasonal)], axis=1)

    def _river_roots(self, rows: Rows, features: Floats, bases: Floats, *, see: bool) -> Floats:
        found = np.full((len(rows), len(HORIZONS_S)), np.nan)
        for index, (row, values, base_roots) in enumerate(
            zip(rows.tolist(), features.tolist(), bases.tolist(), strict=True)
        ):
            named = dict(zip(FEATURES, values, strict=True))
            if see:
                self._river[row].see(named)
            roots = self._river[row].forecast(named, base_roots)
            if roots is not None:
                found[index] = roots
        return found

    def _quantiles(self, rows: Rows, roots: Floats, horizon: int) -> Floats:
        """Of every forecaster, the chosen floor last; (n, forecasters, levels)."""
        quantiles = np.empty((len(rows), FORECASTERS, len(QUANTILE_LEVELS)))
        for forecaster, residuals in enumerate(self._residuals[horizon]):
            quantiles[:, forecaster] = residuals.quantiles(rows, roots[:, forecaster, horizon])
        floor = self._floor(rows, roots)[:, horizon]
        quantiles[:, FLOOR] = quantiles[np.arange(len(rows)), floor]
        return quantiles

    def _floor(self, rows: Rows, roots: Floats) -> Rows:
        seasonal = self._scores.prefers_seasonal(rows) & np.isfinite(roots[:, SEASONAL])
        return np.where(seasonal, SEASONAL, LAST_VALUE)


METHODS: dict[int, str] = {
    RIVER: river_rate.METHOD,
    LAST_VALUE: naive.LAST_VALUE,
    SEASONAL: naive.SEASONAL,
}


def _whole(now_s: float) -> float:
    return math.floor(now_s / BUCKET_S) * BUCKET_S
