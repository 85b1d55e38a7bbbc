"""Key figures, the six panels, and what was hot when."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.control import kpi_schemas as schemas
from api.control import kpi_views as views
from api.control.kpis.rings import Window
from api.control.room import READ, Room

router = APIRouter(tags=["kpis"], dependencies=READ)

WindowArg = Annotated[
    schemas.WindowName, Query(description="How far back; it begins with a whole bucket.")
]


@router.get("/v1/kpis")
async def get_kpis(
    room: Room,
    window: WindowArg = "1h",
    model: Annotated[str | None, Query(max_length=512, description="Only this model.")] = None,
) -> schemas.KpiView:
    """Throughput, latency, targets, cost and satisfaction: in total, by class and by model."""
    name = None if model is None else room.model(model)
    view = views.kpi_view(room.board, Window(window), room.clock.now_s(), name)
    return view.model_copy(update={"stale": room.board.store_fault is not None})


@router.get("/v1/panels")
async def get_panels(room: Room, window: WindowArg = "1h") -> schemas.PanelsView:
    """GPUs, memory, CPU, queues, load times and decisions over time, with their thresholds."""
    return views.panels_view(room.board, Window(window), room.clock.now_s())


@router.get("/v1/heat")
async def get_heat(room: Room, window: WindowArg = "24h") -> schemas.HeatView:
    """Requests and residency of every model over time."""
    return views.heat_view(room.board, Window(window), room.clock.now_s())
