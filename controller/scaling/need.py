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
_HIGH_Z = 1.2816
"""The same quantile of the standard normal distribution."""

_ENOUGH_Z = 1.645
"""Enough nineteen times in twenty, as latency targets are meant by default."""


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
    """Nineteen times in twenty no more than this at once, at the horizon a start reaches to.

    Requests at once are arrivals per second times how long each takes (Little's law), and vary
    about that as a Poisson variable does where each comes by itself (the M/G/infinity queue);
    that the rate itself is uncertain comes on top. Models are taken as independent: means add
    up, and so do the squares of how far the high quantile is off.
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
            off_squared += (found[1] / _HIGH_Z) ** 2 + found[0]
    return mean + _ENOUGH_Z * math.sqrt(off_squared) if has_any else None


def _at_once(forecast: ModelForecast, start_s: float, now_s: float) -> tuple[float, float] | None:
    """Mean requests at once, and what a high rate adds to them; None: no usable forecast."""
    arrivals = _valid(forecast.signal(Signal.ARRIVALS), now_s)
    took = _valid(forecast.signal(Signal.DURATION_S), now_s)
    if arrivals is None or took is None:
        return None
    steps = [one for one in arrivals.horizons if one.status is not ForecastStatus.DEGRADED]
    if not steps or not took.horizons:
        return None
    number = next((n for n, one in enumerate(steps) if one.horizon_s >= start_s), len(steps) - 1)
    step, before = steps[number], steps[number - 1] if number else None
    rate = step.mean / step.horizon_s
    if before is not None:
        # What comes towards its end: on a rising flank that is more than the whole's average.
        rate = max(rate, (step.mean - before.mean) / (step.horizon_s - before.horizon_s))
    off = max(0.0, step.quantiles[_HIGH] - step.mean) / step.horizon_s
    duration_s = took.horizons[0].mean
    return rate * duration_s, off * duration_s


def _valid(forecast: Forecast | None, now_s: float) -> Forecast | None:
    return None if forecast is None or now_s >= forecast.expires_at_s else forecast
