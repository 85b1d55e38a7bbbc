"""The headline figures."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas, views
from api.control.room import READ, Room

router = APIRouter(tags=["summary"], dependencies=READ)


@router.get("/v1/summary")
async def get_summary(room: Room) -> schemas.SummaryView:
    """Requests, cold starts here and with the baseline, prefetches, targets met."""
    return views.summary_view(
        room.board,
        room.clock.now_s(),
        time_scale=room.clock.scale,
        stale_after_s=room.stale_after_s,
    )
