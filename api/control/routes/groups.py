"""Groups of work: their shares, and what they take of them."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas
from api.control.group_views import GroupView, group_views
from api.control.room import READ, Room

router = APIRouter(tags=["groups"], dependencies=READ)


@router.get("/v1/groups")
async def list_groups(room: Room) -> schemas.Page[GroupView]:
    """Every group that is configured; none where models are not grouped."""
    world, stale = room.world()
    data = group_views(world, room.config.groups)
    return schemas.Page(data=data, last_id=data[-1].id if data else None, stale=stale)
