"""Maintenance: shortens the logs and drops forecasts of models that nobody uses any more."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.errors import Invalid
from contracts.forecasts import Forecasts, ModelForecast
from contracts.ids import ModelId
from workers.tools import JobContext, Tools

KIND = "retention"


def forgotten(forecasts: Forecasts, *, now_s: float, max_age_s: float) -> tuple[ModelId, ...]:
    """Models whose last request, or where none is known last forecast, is too old. Pure."""
    return tuple(
        sorted(
            model
            for model, forecast in forecasts.items()
            if now_s - _last_sign_s(forecast) > max_age_s
        )
    )


async def run(
    payload: Mapping[str, object], _context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """Trim everything once, and return what went.

    A second run finds nothing left to do, so that running it twice is harmless.

    Raises
    ------
    Invalid
        The payload is not empty: what is kept is set in the configuration.
    Transient
        A store did not answer; what was trimmed until then stays so.
    """
    if payload:
        raise Invalid(f'payload: unknown "{min(payload)}"; retention takes none')
    config = tools.retention
    trimmed = {}
    for name, log in tools.logs.items():
        limit = config.max_entries.get(name)
        if limit is None:
            raise Invalid(f'log "{name}": no number of entries is configured for it')
        trimmed[name] = await log.trim(max_age_s=config.max_age_s, max_entries=limit)
    models = forgotten(
        await tools.forecasts.get_all(),
        now_s=tools.clock.now_s(),
        max_age_s=config.forecast_age_s,
    )
    if models:
        await tools.forecasts.remove(models)
    return {"trimmed": trimmed, "forecasts_removed": list(models)}


def _last_sign_s(forecast: ModelForecast) -> float:
    use = forecast.next_use
    if use is not None and use.last_arrival_at_s is not None:
        return use.last_arrival_at_s
    made = [signal.made_at_s for signal in forecast.signals]
    return max(made + ([use.made_at_s] if use is not None else []), default=0.0)
