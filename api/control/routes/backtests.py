"""How good forecasts were, as the newest backtests found."""

from __future__ import annotations

from fastapi import APIRouter

from api.control.errors import ApiError
from api.control.insight_schemas import BacktestView
from api.control.insight_views import backtest_view
from api.control.room import READ, ControlRoom, Room
from api.control.schemas import Page
from contracts.insights import BacktestReport

router = APIRouter(tags=["forecasts"], dependencies=READ)


@router.get("/v1/backtests")
async def list_backtests(room: Room) -> Page[BacktestView]:
    """The newest table of each workload, the newest first."""
    data = [backtest_view(report) for report in await newest_reports(room)]
    return Page(data=data, last_id=data[-1].id if data else None)


async def newest_reports(room: ControlRoom) -> tuple[BacktestReport, ...]:
    """Raises ApiError where there is no store of backtests, or none in time."""
    insights = room.ports.insights
    if insights is None:
        raise ApiError(
            503, "not_configured", "no store of backtests is set up here", code="no_backtests"
        )
    return await room.ask(insights.backtests())
