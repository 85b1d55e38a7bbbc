"""What is expected of each model."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas, views
from api.control.errors import ApiError, not_found, store_away
from api.control.insight_schemas import ScoredForecastView
from api.control.insight_views import model_backtest_view
from api.control.paging import After, Limit, cut_page
from api.control.room import READ, ControlRoom, Room
from api.control.routes.backtests import newest_reports
from contracts.errors import HeadstartError
from contracts.insights import OWN_LOG, BacktestReport

router = APIRouter(tags=["forecasts"], dependencies=READ)


@router.get("/v1/forecasts")
async def list_forecasts(
    room: Room, limit: Limit = 100, after: After = None
) -> schemas.Page[schemas.ForecastView]:
    """Quantiles and next-use probabilities of every model, by name."""
    forecasts, fault = room.board.forecasts, room.board.store_fault
    if not forecasts and fault is not None:
        raise store_away()
    names, more = cut_page(sorted(forecasts), limit=limit, after=after, key=str)
    now_s = room.clock.now_s()
    return schemas.Page(
        data=[views.forecast_view(forecasts[name], now_s) for name in names],
        has_more=more,
        last_id=names[-1] if names else None,
        stale=fault is not None,
    )


@router.get("/v1/forecasts/{model:path}")
async def get_forecast(room: Room, model: str) -> ScoredForecastView:
    """Quantiles per horizon, next use, the scores against the naive floor, and who is champion."""
    name = room.model(model)
    forecast, fault = room.board.forecasts.get(name), room.board.store_fault
    if forecast is None:
        if fault is not None:
            raise store_away()
        raise not_found(f'nothing is forecast for "{name}" yet', code="no_forecast", param="model")
    view = views.forecast_view(forecast, room.clock.now_s())
    return ScoredForecastView(
        **{**view.model_dump(), "stale": fault is not None},
        backtest=model_backtest_view(await _reports(room), name, workload=OWN_LOG),
    )


async def _reports(room: ControlRoom) -> tuple[BacktestReport, ...]:
    """Backtests, where they can be had: a forecast is shown all the same."""
    try:
        return await newest_reports(room)
    except (HeadstartError, ApiError):
        return ()
