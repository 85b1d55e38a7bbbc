"""LocalAI instances and their memory."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas
from api.control.machine_schemas import MachineNodeView
from api.control.machine_views import machine_node_view
from api.control.paging import After, Limit, cut_page
from api.control.room import READ, Room

router = APIRouter(tags=["nodes"], dependencies=READ)


@router.get("/v1/nodes")
async def list_nodes(
    room: Room, limit: Limit = 100, after: After = None
) -> schemas.Page[MachineNodeView]:
    """Every node, by name."""
    world, stale = room.world()
    now_s = room.clock.now_s()
    names, more = cut_page(sorted(world.nodes), limit=limit, after=after, key=str)
    return schemas.Page(
        data=[machine_node_view(room.board, world.nodes[name], now_s) for name in names],
        has_more=more,
        last_id=names[-1] if names else None,
        stale=stale,
    )
