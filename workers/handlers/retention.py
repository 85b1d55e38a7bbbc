"""Maintenance: shortens the logs, drops what nobody uses any more and whose time is over."""

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
    return {
        "trimmed": trimmed,
        "forecasts_removed": list(models),
        "batches_removed": await _remove_batches(tools),
        "files_removed": await _remove_files(tools),
    }


async def _remove_batches(tools: Tools) -> int:
    """Remove the records of batches that ended long ago, and what a crash left of their results."""
    removed = 0
    if tools.batches is not None and tools.line_results is not None:
        for batch in await tools.batches.list():
            ended_s = max(batch.reached_at_s.values(), default=batch.created_at_s)
            if batch.has_ended and tools.clock.now_s() - ended_s > tools.retention.batch_age_s:
                await tools.aside(tools.line_results.remove, batch.batch_id)
                await tools.batches.remove(batch.batch_id)
                removed += 1
    return removed


async def _remove_files(tools: Tools) -> int:
    """Remove files whose time is over, but for those that a batch still needs."""
    if tools.files is None or tools.batches is None:
        return 0
    needed = {batch.input_file_id for batch in await tools.batches.list() if not batch.has_ended}
    removed = 0
    for file in await tools.aside(tools.files.list):
        is_over = file.expires_at_s is not None and file.expires_at_s <= tools.clock.now_s()
        if is_over and file.file_id not in needed:
            removed += await tools.aside(tools.files.delete, file.file_id)
    return removed


def _last_sign_s(forecast: ModelForecast) -> float:
    use = forecast.next_use
    if use is not None and use.last_arrival_at_s is not None:
        return use.last_arrival_at_s
    made = [signal.made_at_s for signal in forecast.signals]
    return max(made + ([use.made_at_s] if use is not None else []), default=0.0)
