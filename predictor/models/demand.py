"""How many requests come within 1, 5, 15 and 60 minutes: a mixture of methods, model by model.

Forecasts are made from whole 10 s buckets. Each is kept until its horizon has passed, scored,
and only then learned from. A horizon makes at most five of them per its own length, since
outcomes that overlap say little that is new: so what waits for its outcome is bounded.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.evaluation import ArrivalScores, Losses, pinball_loss
from predictor.models import boosted, naive, pooled_rate, river_rate, river_season
from predictor.models.boosted import Challenger
from predictor.models.count_quantiles import (
    CountQuantiles,
    band_share,
    counts_at,
    from_root,
    to_root,
)
from predictor.models.decayed_rates import SCALES_S, DecayedRates
from predictor.models.demand_sources import (
    BUCKET_S,
    MINUTE_S,
    POOLED_FEATURES,
    RIVER_FEATURES,
    DemandSources,
    Sources,
)
from predictor.models.drift import DriftWatch
from predictor.models.hedge import HedgeWeights
from predictor.models.pooled_rate import PooledRate
from predictor.models.river_rate import RiverRate
from predictor.models.said import Said
from predictor.opinions import MIXTURE
from predictor.windows import Floats, Rows

_RATES = (0, 1, 2, 4)
"""Scales that are methods of their own: a minute, ten, an hour, a day."""
METHODS: tuple[str, ...] = (
    pooled_rate.METHOD,
    river_rate.METHOD,
    river_season.METHOD,
    boosted.METHOD,
    *(f"rate_{round(float(SCALES_S[scale]))}_s" for scale in _RATES),
    "hour_profile",
    "day_profile",
    naive.LAST_VALUE,
    naive.SEASONAL,
)
_POOLED, _RIVER = 0, 1
_BY_DAY, _LAST, _SEASONAL = range(len(METHODS) - 3, len(METHODS))
_POOLED_START = 0.5
"""Half of all trust is the shared regression's at first, the rest is even."""

_STRIDES_S = tuple(max(MINUTE_S, horizon_s / 5.0) for horizon_s in HORIZONS_S)
_SHARES = tuple(
    stride_s / horizon_s for stride_s, horizon_s in zip(_STRIDES_S, HORIZONS_S, strict=True)
)
_MAX_PENDING = 8
_DRIFT_HORIZON = 1
"""Changes of habit are looked for at five minutes, in how far outcomes lie from the model's
usual day: the mixture itself would have followed already, and a morning is no change."""
_KEPT_AFTER_DRIFT = 0.25
_TOP = QUANTILE_LEVELS.index(0.9)


_Part: TypeAlias = DemandSources | ArrivalScores | DriftWatch | HedgeWeights | CountQuantiles


@dataclass(frozen=True, slots=True)
class _Pending:
    made_s: float
    rows: Rows
    births: Rows
    pooled: Floats
    river: Floats
    bases: Floats
    said: Said
    floor: Rows


@dataclass(frozen=True, slots=True)
class DemandForecasts:
    """For n models: everything that is published about their arrivals; arrays by row."""

    means: Floats
    quantiles: Floats
    weights: Floats
    """Of each of ``METHODS``, (n, horizons, methods)."""
    floor: Rows
    """The floor's place in ``METHODS``, (n, horizons)."""
    ready: npt.NDArray[np.bool_]
    degraded: npt.NDArray[np.bool_]
    losses: Floats
    floor_losses: Floats
    coverage: Floats
    band_coverage: Floats
    rmsse: Floats


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
        self._sources = DemandSources(rows, rates)
        self._river: list[RiverRate | None] = [None] * rows
        self._births = np.zeros(rows, dtype=np.intp)
        self._scores = ArrivalScores(rows)
        self._drift = DriftWatch(rows)
        # Without a challenger, the others' shares are as if it were none of the methods.
        start = np.full(len(METHODS), (1.0 - _POOLED_START) / (len(METHODS) - 2))
        start[_POOLED] = _POOLED_START
        start /= start.sum()
        self._pooled = [PooledRate(POOLED_FEATURES, share=share) for share in _SHARES]
        self._hedge = [HedgeWeights(rows, start, share=share) for share in _SHARES]
        self._laws = [CountQuantiles(rows, len(METHODS), share=share) for share in _SHARES]
        self._pending: list[deque[_Pending]] = [deque(maxlen=_MAX_PENDING) for _ in HORIZONS_S]
        self._due_s = [-math.inf for _ in HORIZONS_S]
        self._river_resets = 0

    @property
    def too_late(self) -> int:
        """Arrivals that came after their time was forgotten, so far."""
        return self._sources.too_late

    @property
    def resets(self) -> int:
        """How often something learned had to be started afresh."""
        running = sum(river.resets for river in self._river if river is not None)
        pooled = sum(pooled.resets for pooled in self._pooled)
        return self._river_resets + running + pooled + self._sources.resets

    @property
    def drifts(self) -> int:
        """Changes of habit found so far."""
        return self._drift.drifts

    def grow(self, rows: int) -> None:
        """Make room for ``rows`` models in all."""
        more = rows - len(self._river)
        self._river.extend([None] * more)
        self._births = np.pad(self._births, (0, more))
        for part in self._parts():
            part.grow(rows)

    def clear(self, row: int) -> None:
        """Forget what ``row`` held; forecasts of it that wait for an outcome become void."""
        self._births[row] += 1
        self._forget_river(row)
        for part in self._parts():
            part.clear(row)

    def add(self, row: int, at_s: float) -> None:
        """A request came for ``row``."""
        self._sources.add(row, at_s)

    def pick(self, row: int, at_s: float) -> None:
        """Somebody chose the model of ``row``."""
        self._sources.pick(row, at_s)

    def list_all(self, at_s: float) -> None:
        """Somebody looked which models there are."""
        self._sources.list_all(at_s)

    def rewind(self, now_s: float) -> None:
        """The clock was set back."""
        self._sources.rewind(now_s)
        for pending in self._pending:
            pending.clear()
        self._due_s = [-math.inf for _ in HORIZONS_S]

    def keep_to(self, utc_offset_s: float) -> None:
        """Clocks on the wall are so far ahead of UTC from now on."""
        self._sources.keep_to(utc_offset_s)

    def advance(self, rows: Rows, now_s: float, *, watched: bool) -> None:
        """Score and learn what is complete by now, and make the forecasts that are due."""
        made_s = _whole(now_s)
        self._sources.advance(rows, made_s, watched=watched)
        due = [horizon for horizon, due_s in enumerate(self._due_s) if made_s >= due_s]
        for horizon, pending in enumerate(self._pending):
            while pending and pending[0].made_s + HORIZONS_S[horizon] <= made_s:
                self._settle(horizon, pending.popleft())
        if not due or len(rows) == 0:
            return
        sources = self._sources.at(rows, made_s)
        river = sources.river()
        self._see(rows, river)
        for horizon in due:
            self._due_s[horizon] = made_s + _STRIDES_S[horizon]
            pooled, bases, said = self._say(rows, sources, river, horizon)
            self._pending[horizon].append(
                _Pending(
                    made_s=made_s,
                    rows=rows,
                    births=self._births[rows],
                    pooled=pooled,
                    river=river,
                    bases=bases,
                    said=said,
                    floor=self._floor(rows, said, horizon),
                )
            )

    def forecast(self, rows: Rows, now_s: float) -> DemandForecasts:
        """What is expected from the last whole bucket before ``now_s``."""
        sources = self._sources.at(rows, _whole(now_s))
        river = sources.river()
        degraded = self._scores.degraded(rows)
        every = np.arange(len(rows))
        means, quantiles, weights, floors = [], [], [], []
        for horizon in range(len(HORIZONS_S)):
            said = self._say(rows, sources, river, horizon)[2]
            floor = self._floor(rows, said, horizon)
            fallen = degraded[:, horizon]
            roots = np.where(fallen[:, None], said.roots[every, floor], said.mixed)
            quantiles.append(counts_at(roots))
            means.append(np.where(fallen, said.means[every, floor], said.mean))
            weights.append(said.weights)
            floors.append(floor)
        return DemandForecasts(
            means=np.stack(means, axis=1),
            quantiles=np.stack(quantiles, axis=1),
            weights=np.stack(weights, axis=1),
            floor=np.stack(floors, axis=1),
            ready=self._scores.ready(rows),
            degraded=degraded,
            losses=self._scores.mean_loss(rows),
            floor_losses=self._scores.floor_loss(rows),
            coverage=self._scores.coverage(rows),
            band_coverage=self._scores.band_coverage(rows),
            rmsse=self._scores.rmsse(rows),
        )

    def take_challenger(self, challenger: Challenger | None) -> None:
        """Ask this one beside all others from now on; None: nobody."""
        self._sources.take_challenger(challenger)

    def boosted_quantiles(self, rows: Rows, now_s: float) -> Floats:
        """What the challenger itself says of counts; (n, horizons, levels)."""
        return self._sources.boosted_quantiles(rows, _whole(now_s))

    def opinions(self, rows: Rows, now_s: float) -> tuple[tuple[str, ...], Floats, Floats]:
        """Every method beside what is published; see ``ArrivalOpinions``."""
        published = self.forecast(rows, now_s)
        sources = self._sources.at(rows, _whole(now_s))
        river = sources.river()
        all_said = [
            self._say(rows, sources, river, horizon)[2] for horizon in range(len(HORIZONS_S))
        ]
        means = np.stack([said.means for said in all_said], axis=2)
        quantiles = np.stack([counts_at(said.roots) for said in all_said], axis=2)
        return (
            (MIXTURE, *METHODS),
            np.concatenate([published.means[:, None], means], axis=1),
            np.concatenate([published.quantiles[:, None], quantiles], axis=1),
        )

    def _say(
        self, rows: Rows, sources: Sources, river: Floats, horizon: int
    ) -> tuple[Floats, Floats, Said]:
        """What the shared regression saw, where the others started, and what all say."""
        features, plain = sources.pooled(horizon)
        pooled = self._pooled[horizon].expected(features, plain)
        bases = to_root(pooled)
        expected = np.stack(
            [
                pooled,
                self._river_counts(rows, river, bases, horizon),
                sources.holt_winters[:, horizon],
                sources.boosted[:, horizon],
                *(sources.rate(scale)[:, horizon] for scale in _RATES),
                sources.of_hour[:, horizon],
                sources.of_day[:, horizon],
                sources.last[:, horizon],
                sources.seasonal[:, horizon],
            ],
            axis=1,
        )
        roots = self._laws[horizon].roots(rows, expected)
        means = self._laws[horizon].means(expected)
        weights = self._hedge[horizon].of(rows, np.isfinite(expected))
        mixed = np.einsum("nm,nml->nl", weights, np.nan_to_num(roots))
        return features, bases, Said(expected, roots, weights, mixed, means)

    def _settle(self, horizon: int, pending: _Pending) -> None:
        length_s = HORIZONS_S[horizon]
        outcomes = self._sources.outcomes(pending.rows, pending.made_s + length_s, length_s)
        valid = np.isfinite(outcomes) & (self._births[pending.rows] == pending.births)
        if not valid.any():
            return
        rows, outcomes = pending.rows[valid], outcomes[valid]
        said, floor = pending.said.only(valid), pending.floor[valid]
        losses = pinball_loss(counts_at(said.roots), outcomes[:, None])
        quantiles = counts_at(said.mixed)
        mixed = pinball_loss(quantiles, outcomes)
        self._scores.learn(
            rows,
            horizon,
            Losses(
                mixture=mixed,
                last=losses[:, _LAST],
                seasonal=losses[:, _SEASONAL],
                floor=losses[np.arange(len(rows)), floor],
                error=np.square(said.mean - outcomes),
                last_error=np.square(said.expected[:, _LAST] - outcomes),
                under=outcomes <= quantiles[:, _TOP],
                inside=band_share(said.mixed, outcomes),
            ),
        )
        self._hedge[horizon].learn(rows, losses, mixed)
        self._pooled[horizon].learn(pending.pooled[valid], said.expected[:, _POOLED], outcomes)
        self._laws[horizon].learn(rows, said.expected, said.roots, outcomes)
        targets = to_root(outcomes)
        self._teach_river(rows, pending.river[valid], horizon, pending.bases[valid], targets)
        if horizon == _DRIFT_HORIZON and round(pending.made_s / MINUTE_S) % 5 == 0:
            self._look_for_drift(rows, targets - to_root(said.expected[:, _BY_DAY]))

    def _look_for_drift(self, rows: Rows, errors: Floats) -> None:
        for row, error in zip(rows.tolist(), errors.tolist(), strict=True):
            if self._drift.changed(row, error):
                self._sources.shorten(row, _KEPT_AFTER_DRIFT)
                for horizon, hedge in enumerate(self._hedge):
                    hedge.clear(row)
                    self._laws[horizon].clear(row)

    def _see(self, rows: Rows, river: Floats) -> None:
        for row, values in zip(rows.tolist(), river.tolist(), strict=True):
            model = self._river[row]
            if model is None:
                model = self._river[row] = RiverRate()
            model.see(dict(zip(RIVER_FEATURES, values, strict=True)))

    def _teach_river(
        self, rows: Rows, river: Floats, horizon: int, bases: Floats, targets: Floats
    ) -> None:
        for row, values, base, target in zip(
            rows.tolist(), river.tolist(), bases.tolist(), targets.tolist(), strict=True
        ):
            model = self._river[row]
            assert model is not None, "it was made when the forecast was"
            model.learn(dict(zip(RIVER_FEATURES, values, strict=True)), horizon, base, target)

    def _river_counts(self, rows: Rows, river: Floats, bases: Floats, horizon: int) -> Floats:
        found = np.full(len(rows), np.nan)
        for index, (row, values, base) in enumerate(
            zip(rows.tolist(), river.tolist(), bases.tolist(), strict=True)
        ):
            model = self._river[row]
            if model is not None:
                root = model.forecast(dict(zip(RIVER_FEATURES, values, strict=True)), horizon, base)
                if root is not None:
                    found[index] = root
        return np.where(np.isfinite(found), from_root(found), np.nan)

    def _floor(self, rows: Rows, said: Said, horizon: int) -> Rows:
        seasonal = self._scores.prefers_seasonal(rows)[:, horizon]
        return np.where(seasonal & np.isfinite(said.expected[:, _SEASONAL]), _SEASONAL, _LAST)

    def _parts(self) -> Iterator[_Part]:
        yield self._sources
        yield self._scores
        yield self._drift
        yield from self._hedge
        yield from self._laws

    def _forget_river(self, row: int) -> None:
        model = self._river[row]
        if model is not None:
            self._river_resets += model.resets
            self._river[row] = None


def _whole(now_s: float) -> float:
    return math.floor(now_s / BUCKET_S) * BUCKET_S
