"""The policies that there are, and which is in use."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas, views
from api.control.errors import store_away
from api.control.paging import After, Limit, cut_page
from api.control.room import READ, Room

router = APIRouter(tags=["policies"], dependencies=READ)


@router.get("/v1/policies")
async def list_policies(
    room: Room, limit: Limit = 100, after: After = None
) -> schemas.Page[schemas.PolicyView]:
    """Each with what its ghost made of the live traffic, where it was in the shadow."""
    fault = room.board.store_fault
    if not room.board.baselines and fault is not None:
        raise store_away()
    found, more = cut_page(
        views.policy_views(room.board), limit=limit, after=after, key=lambda one: one.id
    )
    return schemas.Page(
        data=list(found),
        has_more=more,
        last_id=found[-1].id if found else None,
        stale=fault is not None,
    )
