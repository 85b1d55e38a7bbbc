"""LocalAI instances and their memory."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas, views
from api.control.paging import After, Limit, cut_page
from api.control.room import READ, Room

router = APIRouter(tags=["nodes"], dependencies=READ)


@router.get("/v1/nodes")
async def list_nodes(
    room: Room, limit: Limit = 100, after: After = None
) -> schemas.Page[schemas.NodeView]:
    """Every node, by name."""
    world, stale = room.world()
    names, more = cut_page(sorted(world.nodes), limit=limit, after=after, key=str)
    return schemas.Page(
        data=[views.node_view(room.board, world.nodes[name]) for name in names],
        has_more=more,
        last_id=names[-1] if names else None,
        stale=stale,
    )
