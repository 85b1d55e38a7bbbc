"""The settings in force, and where each comes from."""

from __future__ import annotations

from fastapi import APIRouter

from api.control.kpi_schemas import SettingView
from api.control.room import READ, Room
from api.control.schemas import Page

router = APIRouter(tags=["settings"], dependencies=READ)


@router.get("/v1/settings")
async def list_settings(room: Room) -> Page[SettingView]:
    """Every key; a key or a password is shown as `***`. Empty where this process has none."""
    data = [
        SettingView(id=key, value=value, origin=origin) for key, value, origin in room.settings()
    ]
    return Page(data=data, last_id=data[-1].id if data else None)
