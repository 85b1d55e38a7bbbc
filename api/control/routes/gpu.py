"""Handing the GPU over to another program, and taking it back."""

from __future__ import annotations

from fastapi import APIRouter

from api.control.machine_schemas import GpuHandoverView, GpuYieldBody
from api.control.machine_views import handover_view
from api.control.room import READ, WRITE, ControlRoom, Room
from contracts.messages import SettingsChanged
from contracts.world import GpuYield

router = APIRouter(tags=["gpu"])

_MIB = 1024**2


@router.get("/v1/gpu", dependencies=READ)
async def get_gpu(room: Room) -> GpuHandoverView:
    """Whether the GPU is handed over, by whom and until when, and what models still hold."""
    world, stale = room.world()
    wanted = await room.ask(room.ports.settings.gpu_yield())
    return handover_view(world, wanted, room.clock.now_s(), stale=stale)


@router.post("/v1/gpu/yield", dependencies=WRITE)
async def yield_gpu(room: Room, body: GpuYieldBody | None = None) -> GpuHandoverView:
    """Have models let go of the GPU: idle ones at once, others when they have served.

    Nothing is loaded there until it is taken back or the time is over; CPU variants serve on.
    """
    body = body or GpuYieldBody()
    now_s = room.clock.now_s()
    wish = GpuYield(
        since_s=now_s,
        until_s=None if body.minutes is None else now_s + 60.0 * body.minutes,
        keep_bytes=body.keep_mb * _MIB,
        note=body.note,
    )
    return await _set(room, wish)


@router.post("/v1/gpu/resume", dependencies=WRITE)
async def resume_gpu(room: Room) -> GpuHandoverView:
    """Take the GPU back; what had to go comes back where there is room. Quiet hours go on."""
    return await _set(room, None)


async def _set(room: ControlRoom, wish: GpuYield | None) -> GpuHandoverView:
    world, stale = room.world()
    await room.ask(room.ports.settings.set_gpu_yield(wish))
    await room.ask(room.ports.controller.send(SettingsChanged(at_s=room.clock.now_s())))
    room.live.refresh()
    return handover_view(world, wish, room.clock.now_s(), stale=stale)
