"""Forecasts as the records that others read. What is not a number stops here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from contracts.forecasts import (
    HORIZONS_S,
    Forecast,
    ForecastStatus,
    HorizonForecast,
    NextUse,
    Signal,
)
from contracts.ids import ModelId
from predictor.models.demand import METHODS, DemandForecasts
from predictor.models.latency import LatencyForecast
from predictor.models.next_use import CurveAccount
from predictor.opinions import MIXTURE


def next_use_records(
    models: Sequence[ModelId],
    curves: Sequence[Sequence[float]],
    accounts: Sequence[CurveAccount],
    *,
    reliability_error: float | None,
    made_at_s: float,
    expires_at_s: float,
) -> tuple[NextUse, ...]:
    """The next-use curves of ``models``, in the same order."""
    return tuple(
        NextUse(
            model=model,
            made_at_s=made_at_s,
            expires_at_s=expires_at_s,
            last_arrival_at_s=account.last_arrival_at_s,
            cumulative_hazard=tuple(curve),
            method=account.method,
            status=account.status,
            brier=account.brier,
            floor_brier=account.floor_brier,
            reliability_error=reliability_error,
        )
        for model, curve, account in zip(models, curves, accounts, strict=True)
    )


def arrival_forecasts(
    models: Sequence[ModelId],
    expected: DemandForecasts,
    *,
    made_at_s: float,
    expires_at_s: float,
) -> tuple[Forecast, ...]:
    """The arrivals of each of ``models``, in the same order."""
    columns = [
        column.tolist()
        for column in (
            expected.means,
            expected.quantiles,
            expected.weights,
            expected.floor,
            expected.ready,
            expected.degraded,
            expected.losses,
            expected.floor_losses,
            expected.coverage,
            expected.band_coverage,
            expected.rmsse,
        )
    ]
    return tuple(
        Forecast(
            model=model,
            signal=Signal.ARRIVALS,
            made_at_s=made_at_s,
            expires_at_s=expires_at_s,
            horizons=tuple(map(_arrivals, HORIZONS_S, *row)),
        )
        for model, *row in zip(models, *columns, strict=True)
    )


def _arrivals(
    horizon_s: float,
    mean: float,
    quantiles: list[float],
    weights: list[float],
    floor: int,
    ready: bool,  # noqa: FBT001 - a column among columns
    degraded: bool,  # noqa: FBT001
    *scores: float,
) -> HorizonForecast:
    loss, floor_loss, coverage, band_coverage, rmsse = map(_known, scores)
    return HorizonForecast(
        horizon_s=horizon_s,
        mean=mean,
        quantiles=tuple(quantiles),
        method=METHODS[floor] if degraded else MIXTURE,
        status=_status(ready=ready, degraded=degraded),
        loss=loss,
        floor_loss=floor_loss,
        coverage_ratio=coverage,
        weights=tuple(
            (method, round(weight, 3))
            for method, weight in zip(METHODS, weights, strict=True)
            if weight >= _TOLD_WEIGHT
        ),
        band_coverage_ratio=band_coverage,
        rmsse=rmsse,
    )


def latency_forecasts(
    model: ModelId,
    expected: Mapping[Signal, LatencyForecast],
    *,
    made_at_s: float,
    expires_at_s: float,
) -> tuple[Forecast, ...]:
    """Times and speeds of which at least one value was seen; they hold for any horizon."""
    return tuple(
        Forecast(
            model=model,
            signal=signal,
            made_at_s=made_at_s,
            expires_at_s=expires_at_s,
            horizons=(
                HorizonForecast(
                    horizon_s=HORIZONS_S[-1],
                    mean=said.mean,
                    quantiles=said.quantiles,
                    method=said.method,
                    status=_status(ready=said.ready, degraded=said.degraded),
                    loss=said.loss,
                    floor_loss=said.floor_loss,
                    coverage_ratio=said.coverage,
                    band_coverage_ratio=said.band_coverage,
                ),
            ),
        )
        for signal, said in expected.items()
    )


def work_forecasts(arrivals: Forecast, per_request: Mapping[Signal, float]) -> tuple[Forecast, ...]:
    """Tokens and requests in flight that the arrivals amount to, by what one request takes.

    Requests in flight are the mean over the horizon: arrivals times seconds of service, over
    its length (Little's law).
    """
    return tuple(
        replace(
            arrivals,
            signal=signal,
            horizons=tuple(
                _times(
                    horizon,
                    each / horizon.horizon_s if signal is Signal.CONCURRENCY else each,
                )
                for horizon in arrivals.horizons
            ),
        )
        for signal, each in per_request.items()
    )


def _times(horizon: HorizonForecast, factor: float) -> HorizonForecast:
    """Scores are those of the arrivals: they say nothing of what was made of them."""
    return HorizonForecast(
        horizon_s=horizon.horizon_s,
        mean=horizon.mean * factor,
        quantiles=tuple(quantile * factor for quantile in horizon.quantiles),
        method=ARRIVALS_TIMES_MEAN,
        status=horizon.status,
        loss=None,
        floor_loss=None,
        coverage_ratio=None,
    )


ARRIVALS_TIMES_MEAN = "arrivals_times_mean"
_TOLD_WEIGHT = 0.01


def _status(*, ready: bool, degraded: bool) -> ForecastStatus:
    if not ready:
        return ForecastStatus.WARMING_UP
    return ForecastStatus.DEGRADED if degraded else ForecastStatus.READY


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
