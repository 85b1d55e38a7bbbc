"""Profiles: what was measured of a model. They can be removed, and are measured anew then."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas
from api.control.errors import ApiError, not_found
from api.control.profile_views import ProfileView, beside_cpu_rung, cpu_rung, profile_view
from api.control.room import READ, WRITE, ControlRoom, Room
from contracts.ids import ModelId
from contracts.messages import ProfileForgotten
from contracts.ports import ProfileStore
from contracts.profiles import MeasuredProfile

router = APIRouter(tags=["models"])


@router.get("/v1/models/{model:path}/profile", dependencies=READ)
async def get_profile(room: Room, model: str) -> ProfileView:
    """What a model takes and how fast it is, each number with its source, count, spread and age."""
    name = room.model(model)
    world, stale = room.world()
    status = world.models.get(name)
    if status is None:
        raise not_found(f"{name}: nothing is known of it yet", code="no_profile")
    profile = await _stored(room, name)
    view = profile_view(world, status, profile, room.clock.now_s())
    rung = cpu_rung(world, status)
    if rung is not None:
        on_cpu = await _stored(room, rung.model)
        if on_cpu is not None:
            view = beside_cpu_rung(view, status, profile, on_cpu)
    return view.model_copy(update={"stale": stale})


@router.delete("/v1/models/{model:path}/profile", dependencies=WRITE)
async def delete_profile(room: Room, model: str) -> schemas.Deleted:
    """Forget what was measured of a model; its next load is measured as its first one."""
    name = room.model(model)
    store = _store(room)
    if await room.ask(store.get(name)) is None:
        raise not_found(f"{name}: nothing was measured of it yet", code="no_profile")
    await room.ask(store.remove((name,)))
    at_s = room.clock.now_s()
    await room.ask(room.ports.controller.send(ProfileForgotten(model=name, at_s=at_s)))
    return schemas.Deleted(id=name, object="model.profile.deleted")


def _store(room: ControlRoom) -> ProfileStore:
    if room.ports.profiles is None:
        raise ApiError(503, "not_configured", "no profiles are kept here", code="no_profiles")
    return room.ports.profiles


async def _stored(room: ControlRoom, model: ModelId) -> MeasuredProfile | None:
    store = room.ports.profiles
    return None if store is None else await room.ask(store.get(model))
