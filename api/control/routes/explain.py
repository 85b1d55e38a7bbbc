"""Why a model is, or is not, loaded."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import kpi_schemas as schemas
from api.control.explaining import explain_model
from api.control.room import READ, ControlRoom, Room, unknown_model
from api.control.views import decision_view
from contracts.ids import ModelId

router = APIRouter(tags=["models"], dependencies=READ)

_DECISIONS = 8


@router.get("/v1/explain/{model:path}")
async def explain(room: Room, model: str) -> schemas.ExplainView:
    """The answer in sentences, with the numbers and the last decisions about it."""
    world, stale = room.world()
    status = world.models.get(room.model(model))
    if status is None:
        raise unknown_model(model, list(world.models))
    entries = await room.ask(
        room.ports.decisions.newest(limit=_DECISIONS, subject=str(status.model))
    )
    found = explain_model(
        room.board, status, tuple(entry.value for entry in entries), room.clock.now_s()
    )
    return schemas.ExplainView(
        id=status.model,
        model=status.model,
        sentences=list(found.sentences),
        facts=[schemas.FactView(name=fact.name, value=fact.value) for fact in found.facts],
        decisions=[decision_view(entry.value, entry.entry_id) for entry in entries],
        variants=_variants(room, status.model),
        stale=stale,
    )


def _variants(room: ControlRoom, model: ModelId) -> list[schemas.VariantView]:
    ladder = room.board.routing.ladders.get(model) if room.board.routing is not None else None
    return [
        schemas.VariantView(
            model=rung.model,
            kind=rung.kind.value,
            quantisation=rung.quantisation or None,
            made=rung.is_made,
        )
        for rung in (ladder.rungs if ladder is not None else ())
    ]
