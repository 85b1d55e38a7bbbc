"""What one target is asked for, from the world and the forecasts: pure.

Work that may wait asks for no replica: batches take what people leave.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from contracts.events import PriorityClass
from contracts.forecasts import QUANTILE_LEVELS, Forecast, ForecastStatus, ModelForecast, Signal
from contracts.ids import ModelId
from contracts.model_names import may_use
from contracts.scaling import Need, ScalingTarget
from contracts.world import WorldSnapshot

_HIGH = QUANTILE_LEVELS.index(0.9)


def need_of(
    target: ScalingTarget, world: WorldSnapshot, forecasts: Mapping[ModelId, ModelForecast]
) -> Need:
    """Realtime requests at once of the target's models, now and when a new replica would serve."""
    in_flight = waiting = 0
    for request in world.requests.values():
        if request.priority is PriorityClass.REALTIME and may_use(target.models, request.model):
            if request.dispatched_at_s is None:
                waiting += 1
            else:
                in_flight += 1
    return Need(
        in_flight=in_flight,
        waiting=waiting,
        expected=_expected(target, forecasts, world.taken_at_s),
    )


def _expected(
    target: ScalingTarget, forecasts: Mapping[ModelId, ModelForecast], now_s: float
) -> float | None:
    """Nine times in ten no more than this at once, at the horizon that a start reaches to.

    Requests at once are arrivals per second times how long each takes (Little's law). Models are
    taken as independent: means add up, and so do the squares of how far the high quantile is off.
    """
    mean = 0.0
    off_squared = 0.0
    has_any = False
    for model, forecast in forecasts.items():
        if not may_use(target.models, model):
            continue
        found = _at_once(forecast, target.start_s, now_s)
        if found is not None:
            has_any = True
            mean += found[0]
            off_squared += (found[1] - found[0]) ** 2
    return mean + math.sqrt(off_squared) if has_any else None


def _at_once(forecast: ModelForecast, start_s: float, now_s: float) -> tuple[float, float] | None:
    """Mean and high quantile of requests at once; None without a forecast that may be used."""
    arrivals = _valid(forecast.signal(Signal.ARRIVALS), now_s)
    took = _valid(forecast.signal(Signal.DURATION_S), now_s)
    if arrivals is None or took is None:
        return None
    steps = [one for one in arrivals.horizons if one.status is not ForecastStatus.DEGRADED]
    reaching = [one for one in steps if one.horizon_s >= start_s] or steps[-1:]
    if not reaching or not took.horizons:
        return None
    step = reaching[0]
    duration_s = took.horizons[0].mean
    return (
        step.mean / step.horizon_s * duration_s,
        max(step.mean, step.quantiles[_HIGH]) / step.horizon_s * duration_s,
    )


def _valid(forecast: Forecast | None, now_s: float) -> Forecast | None:
    return None if forecast is None or now_s >= forecast.expires_at_s else forecast
