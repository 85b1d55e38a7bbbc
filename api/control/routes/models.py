"""Models: where they are, and what operators want of them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Response

from api.control import schemas, views
from api.control.errors import ApiError
from api.control.paging import After, Limit, cut_page
from api.control.room import READ, WRITE, ControlRoom, Room, unknown_model
from contracts.forecasts import HORIZONS_S
from contracts.ids import ModelId
from contracts.messages import LoadRequested, SettingsChanged, ToController, UnloadRequested
from contracts.world import ModelStatus, Residency

router = APIRouter(tags=["models"])

_ALREADY: dict[int | str, dict[str, Any]] = {
    200: {"model": schemas.ActionView, "description": "Nothing is to be done for it."}
}
_HORIZONS = ", ".join(f"{horizon_s:.0f}" for horizon_s in HORIZONS_S)


@router.get("/v1/models", dependencies=READ)
async def list_models(
    room: Room, limit: Limit = 100, after: After = None
) -> schemas.Page[schemas.ModelView]:
    """Every model with its residency, memory, load time and use, by name."""
    world, stale = room.world()
    names, more = cut_page(sorted(world.models), limit=limit, after=after, key=str)
    now_s = room.clock.now_s()
    return schemas.Page(
        data=[views.model_view(room.board, world.models[name], now_s) for name in names],
        has_more=more,
        last_id=names[-1] if names else None,
        stale=stale,
    )


@router.get("/v1/models/{model:path}/history", dependencies=READ)
async def get_history(
    room: Room,
    model: str,
    horizon_s: Annotated[
        float,
        Query(description=f"One of {_HORIZONS}.", json_schema_extra={"enum": list(HORIZONS_S)}),
    ] = 60.0,
    minutes: Annotated[int, Query(ge=1, le=240)] = 60,
) -> schemas.HistoryView:
    """What came in each minute, beside the band that had been forecast for it."""
    name = room.model(model)
    if horizon_s not in HORIZONS_S:
        raise ApiError(
            422,
            "invalid_request_error",
            f"horizon_s is {horizon_s:g}: must be one of {_HORIZONS}",
            code="invalid_value",
            param="horizon_s",
        )
    now_s = room.clock.now_s()
    rows = room.board.history.rows(name, horizon_s=horizon_s, now_s=now_s, minutes=minutes)
    view = views.history_view(name, rows, horizon_s=horizon_s, now_s=now_s)
    return view.model_copy(update={"stale": room.board.store_fault is not None})


@router.get("/v1/models/{model:path}", dependencies=READ)
async def get_model(room: Room, model: str) -> schemas.ModelView:
    """One model."""
    status, stale = _status(room, model)
    view = views.model_view(room.board, status, room.clock.now_s())
    return view.model_copy(update={"stale": stale})


@router.post(
    "/v1/models/{model:path}/load", status_code=202, dependencies=WRITE, responses=_ALREADY
)
async def load_model(room: Room, model: str, response: Response) -> schemas.ActionView:
    """Ask the controller to load a model; 200 if it is resident already, 409 while observing."""
    status = _commandable(room, model)
    if status.residency is Residency.HOT:
        response.status_code = 200
        return _answer(status.model, "load", "already", "it is resident already")
    if status.residency is Residency.LOADING:
        response.status_code = 200
        return _answer(status.model, "load", "already", "it is loading already")
    _require_active(room)
    await _send(room, LoadRequested(model=status.model, at_s=room.clock.now_s()))
    return _answer(status.model, "load", "accepted", "the controller was asked to load it")


@router.post(
    "/v1/models/{model:path}/unload", status_code=202, dependencies=WRITE, responses=_ALREADY
)
async def unload_model(room: Room, model: str, response: Response) -> schemas.ActionView:
    """Ask the controller to unload a model once nothing is in flight.

    200 if it is cold, 409 while it is pinned or Headstart observes.
    """
    status = _commandable(room, model)
    if status.residency in (Residency.COLD, Residency.FAILED):
        response.status_code = 200
        return _answer(status.model, "unload", "already", "it is not resident")
    pins = await room.ask(room.ports.settings.pins())
    if status.model in pins or room.board.is_pinned(status):
        raise _conflict(f'"{status.model}" is pinned: unpin it first', "model_pinned")
    _require_active(room)
    await _send(room, UnloadRequested(model=status.model, at_s=room.clock.now_s()))
    wait = " when nothing is in flight" if status.in_flight else ""
    return _answer(
        status.model, "unload", "accepted", f"the controller was asked to unload it{wait}"
    )


@router.post("/v1/models/{model:path}/pin", dependencies=WRITE)
async def pin_model(room: Room, model: str) -> schemas.ActionView:
    """Keep a model resident, and load it if it is not."""
    name = room.model(model)
    world = room.board.world
    if world is not None and world.models and name not in world.models:
        raise unknown_model(model, list(world.models))
    return await _set_pin(room, name, pinned=True)


@router.post("/v1/models/{model:path}/unpin", dependencies=WRITE)
async def unpin_model(room: Room, model: str) -> schemas.ActionView:
    """Let a model be unloaded again."""
    return await _set_pin(room, room.model(model), pinned=False)


async def _set_pin(room: ControlRoom, model: ModelId, *, pinned: bool) -> schemas.ActionView:
    settings = room.ports.settings
    action: Literal["pin", "unpin"] = "pin" if pinned else "unpin"
    same = (model in await room.ask(settings.pins())) is pinned
    status = room.board.world.models.get(model) if room.board.world is not None else None
    if same and not pinned and status is not None and room.board.is_pinned(status):
        raise _conflict(
            f'"{model}" is pinned by the configuration: change it there', "pinned_by_configuration"
        )
    if not same:
        await room.ask(settings.set_pin(model, pinned=pinned))
    # Sent in any case: asking again repairs a message that was lost.
    await _send(room, SettingsChanged(at_s=room.clock.now_s()))
    room.board.wish_pin(model, room.clock.now_s(), pinned=pinned)
    room.live.refresh()
    word = "pinned" if pinned else "not pinned"
    if same:
        return _answer(model, action, "already", f"it was {word} already")
    return _answer(model, action, "done", f"it is {word} now")


def _conflict(message: str, code: str) -> ApiError:
    return ApiError(409, "invalid_request_error", message, code=code, param="model")


def _status(room: ControlRoom, name: str) -> tuple[ModelStatus, bool]:
    world, stale = room.world()
    status = world.models.get(room.model(name))
    if status is None:
        # Known by a forecast or a target alone: the controller does not see it.
        raise unknown_model(name, list(world.models))
    return status, stale


def _commandable(room: ControlRoom, name: str) -> ModelStatus:
    """The model's status. Raises ApiError (503) when no controller would hear the command."""
    status, stale = _status(room, name)
    if stale:
        raise ApiError(
            503,
            "no_controller",
            f"nobody would carry this out: {room.stale_reason()}",
            code="no_controller",
            retry_after_s=5.0,
        )
    return status


def _require_active(room: ControlRoom) -> None:
    """Raise ApiError (409) where the controller would hear the command and do nothing."""
    world, _ = room.world()
    if not (room.board.mode_wanted or world.mode).orders:
        raise ApiError(
            409,
            "invalid_request_error",
            "Headstart only observes, and would not do it: set the mode to active first",
            code="observe_only",
        )


async def _send(room: ControlRoom, message: ToController) -> None:
    await room.ask(room.ports.controller.send(message))


def _answer(
    model: ModelId,
    action: Literal["load", "unload", "pin", "unpin"],
    status: Literal["accepted", "already", "done"],
    message: str,
) -> schemas.ActionView:
    return schemas.ActionView(model=model, action=action, status=status, message=message)
