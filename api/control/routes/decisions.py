"""What was decided, why, and on which numbers."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from api.control import schemas, views
from api.control.errors import not_found
from api.control.paging import Limit
from api.control.room import READ, ControlRoom, Room
from contracts.plan import Decision

router = APIRouter(tags=["decisions"], dependencies=READ)

_MOST_BESIDE = 12

_CURSOR = r"^[0-9]{1,19}(-[0-9]{1,19})?$"


@router.get("/v1/decisions")
async def list_decisions(
    room: Room,
    limit: Limit = 50,
    after: Annotated[
        str | None, Query(pattern=_CURSOR, description="The last page's last_id.")
    ] = None,
    model: Annotated[
        str | None, Query(max_length=512, description="Only decisions about this model.")
    ] = None,
) -> schemas.Page[schemas.DecisionView]:
    """Decisions, newest first."""
    subject = None if model is None else str(room.board.find_model(model) or model)
    entries = await room.ask(
        room.ports.decisions.newest(limit=limit + 1, before=after, subject=subject)
    )
    page = entries[:limit]
    return schemas.Page(
        data=[views.decision_view(entry.value, entry.entry_id) for entry in page],
        has_more=len(entries) > limit,
        last_id=page[-1].entry_id if page else None,
    )


@router.get("/v1/decisions/{decision_id:path}")
async def get_decision(room: Room, decision_id: str) -> schemas.DecisionView:
    """One decision with its evidence."""
    decision = None
    if 0 < len(decision_id) <= 200:
        decision = await room.ask(room.ports.decisions.get(decision_id))
    if decision is None:
        raise not_found(
            "no decision has this id, or it is too old to be kept",
            code="decision_not_found",
            param="decision_id",
        )
    beside = await _same_run(room, decision)
    return views.decision_view(decision).model_copy(update={"beside": beside})


async def _same_run(room: ControlRoom, decision: Decision) -> list[schemas.DecisionView]:
    """The others of one run of the planner, whose ids differ in their last number."""
    run, dash, number = decision.decision_id.rpartition("-")
    if not dash or not number.isdecimal():
        return []
    found = []
    for other in range(_MOST_BESIDE):
        if other == int(number):
            continue
        one = await room.ask(room.ports.decisions.get(f"{run}-{other}"))
        if one is None and other > int(number):
            break
        if one is not None:
            found.append(views.decision_view(one))
    return found
