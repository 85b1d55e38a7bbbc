"""Requests that wait for admission, by class."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas, views
from api.control.room import READ, Room

router = APIRouter(tags=["queues"], dependencies=READ)


@router.get("/v1/queues")
async def list_queues(room: Room) -> schemas.Page[schemas.QueueView]:
    """The three queues over all gateways."""
    world, stale = room.world()
    data = [views.queue_view(queue) for queue in world.queues]
    return schemas.Page(data=data, last_id=data[-1].id if data else None, stale=stale)
