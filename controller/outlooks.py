"""The newest forecast of each model, and not of every name that there ever was. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from contracts.forecasts import Forecasts, ModelForecast
from contracts.ids import ModelId
from contracts.world import WorldSnapshot

SLACK = 64
"""Names beside twice as many as there are models, from which on it is looked for gone ones."""


def outlook(
    known: Forecasts, told: Iterable[ModelForecast], world: WorldSnapshot
) -> dict[ModelId, ModelForecast]:
    """What is known once ``told`` is: nobody says that a name is gone, so those are looked for.

    A forecast of a model that is not in the world stays until its curve expires: the list of
    models may be read later than the forecasts.
    """
    newest = {**known, **{forecast.model: forecast for forecast in told}}
    if len(newest) <= 2 * len(world.models) + SLACK:
        return newest
    return {
        name: forecast
        for name, forecast in newest.items()
        if name in world.models or _lasts(forecast, world.taken_at_s)
    }


def _lasts(forecast: ModelForecast, now_s: float) -> bool:
    return forecast.next_use is not None and now_s < forecast.next_use.expires_at_s
