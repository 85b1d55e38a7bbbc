"""The latency target of each model. Kept in the store; they win over the configuration."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas, views
from api.control.errors import not_found
from api.control.paging import After, Limit, cut_page
from api.control.room import READ, WRITE, ControlRoom, Room
from contracts.ids import ModelId
from contracts.messages import SettingsChanged
from contracts.world import Sla

router = APIRouter(tags=["slas"])


@router.get("/v1/slas", dependencies=READ)
async def list_slas(
    room: Room, limit: Limit = 100, after: After = None
) -> schemas.Page[schemas.SlaView]:
    """Every target that was set or configured, by model."""
    slas, fault = room.board.all_slas(), room.board.store_fault
    if not slas and fault is not None:
        room.world()
    names, more = cut_page(sorted(slas), limit=limit, after=after, key=str)
    now_s = room.clock.now_s()
    return schemas.Page(
        data=[views.sla_view(room.board, slas[name], now_s) for name in names],
        has_more=more,
        last_id=names[-1] if names else None,
        stale=fault is not None,
    )


@router.get("/v1/slas/{model:path}", dependencies=READ)
async def get_sla(room: Room, model: str) -> schemas.SlaView:
    """The target of one model."""
    name = room.model(model)
    sla = room.board.sla(name)
    if sla is None:
        raise _no_sla(name)
    return views.sla_view(room.board, sla, room.clock.now_s())


@router.put("/v1/slas/{model:path}", dependencies=WRITE)
async def put_sla(room: Room, model: str, body: schemas.SlaBody) -> schemas.SlaView:
    """Set the target of one model: latency, percentile, class and weight."""
    name = room.model_to_set(model)
    sla = Sla(
        model=name,
        target_s=body.target_s,
        percentile=body.percentile,
        priority=body.priority,
        weight=body.weight,
    )
    await room.ask(room.ports.settings.put_sla(sla))
    await _changed(room)
    return views.sla_view(room.board, sla, room.clock.now_s())


@router.delete("/v1/slas/{model:path}", dependencies=WRITE)
async def delete_sla(room: Room, model: str) -> schemas.Deleted:
    """Let the configuration's target hold again."""
    name = room.model(model)
    if not await room.ask(room.ports.settings.delete_sla(name)):
        raise _no_sla(name)
    room.board.sla_deleted(name, room.clock.now_s())
    await _changed(room)
    return schemas.Deleted(id=name, object="sla.deleted")


async def _changed(room: ControlRoom) -> None:
    await room.ask(room.ports.controller.send(SettingsChanged(at_s=room.clock.now_s())))
    room.board.slas = await room.ask(room.ports.settings.slas())
    room.live.refresh()


def _no_sla(model: ModelId) -> Exception:
    return not_found(f'no target is set for "{model}"', code="no_sla", param="model")
