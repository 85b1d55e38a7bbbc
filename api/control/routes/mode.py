"""What the controller does with its decisions."""

from __future__ import annotations

from fastapi import APIRouter

from api.control import schemas
from api.control.room import READ, WRITE, ControlRoom, Room
from contracts.messages import SettingsChanged

router = APIRouter(tags=["mode"])


@router.get("/v1/mode", dependencies=READ)
async def get_mode(room: Room) -> schemas.ModeView:
    """The mode that is in force, and the one that somebody set."""
    world, stale = room.world()
    return schemas.ModeView(mode=world.mode, wanted=room.board.mode_wanted, stale=stale)


@router.put("/v1/mode", dependencies=WRITE)
async def put_mode(room: Room, body: schemas.ModeBody) -> schemas.ModeView:
    """Set the mode; the controller takes it up at its next run."""
    await room.ask(room.ports.settings.set_mode(body.mode))
    await room.ask(room.ports.controller.send(SettingsChanged(at_s=room.clock.now_s())))
    room.board.mode_wanted = body.mode
    room.live.refresh()
    return _view(room)


def _view(room: ControlRoom) -> schemas.ModeView:
    world = room.board.world
    return schemas.ModeView(
        mode=world.mode if world is not None else None,
        wanted=room.board.mode_wanted,
        stale=room.stale_reason() is not None,
    )
