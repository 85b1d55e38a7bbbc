"""How many there shall be: read by people, and by whoever scales by a number (KEDA, an HPA)."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.control.errors import ApiError, not_found
from api.control.nearest import nearest_names
from api.control.room import READ, ControlRoom, Room
from api.control.scaling_metrics import WORKERS, is_stale, worker_scalings
from api.control.schemas import Page
from contracts.reasons import explain
from contracts.scaling import Scaling

router = APIRouter(tags=["autoscale"], dependencies=READ)


class ScalingView(BaseModel):
    """One target."""

    object: str = "autoscale"
    id: str
    replicas: int = Field(description="How many there shall be.")
    reason: str
    explanation: str
    evidence: dict[str, float]
    at_s: float
    stale: bool = False


@router.get("/v1/autoscale")
async def list_targets(room: Room) -> Page[ScalingView]:
    """Every target with its newest number, stale ones included."""
    now_s = room.clock.now_s()
    found = [view_of(one, now_s) for _, one in sorted((await _scalings(room)).items())]
    found += await _worker_views(room)
    return Page(data=found, last_id=found[-1].id if found else None)


@router.get("/v1/autoscale/{target}")
async def get_target(room: Room, target: str) -> ScalingView:
    """One target; 503 while there is no number of the last minute, so that nothing is moved."""
    if target.startswith(WORKERS):
        for view in await _worker_views(room):
            if view.id == target:
                return view
    scalings = await _scalings(room)
    if target not in scalings:
        near = nearest_names(target, scalings)
        hint = f"; is {' or '.join(near)} meant?" if near else ""
        raise not_found(f"no autoscaling target is called {target!r:.80}{hint}", param="target")
    view = view_of(scalings[target], room.clock.now_s())
    if view.stale:
        raise ApiError(503, "stale", f"{target}: the controller has said nothing for a minute")
    return view


def view_of(scaling: Scaling, now_s: float) -> ScalingView:
    """What is shown of one answer."""
    return ScalingView(
        id=scaling.target,
        replicas=scaling.replicas,
        reason=scaling.reason.value,
        explanation=explain(scaling.reason),
        evidence=dict(scaling.evidence),
        at_s=scaling.at_s,
        stale=is_stale(scaling, now_s),
    )


async def _scalings(room: ControlRoom) -> dict[str, Scaling]:
    store = room.ports.scaling
    return {} if store is None else dict(await room.ask(store.scalings()))


async def _worker_views(room: ControlRoom) -> list[ScalingView]:
    if room.ports.jobs is None:
        return []
    counts = await room.ask_jobs(lambda jobs: jobs.counts())
    now_s = room.clock.now_s()
    found = worker_scalings(counts, {}, max_workers=room.max_workers, now_s=now_s)
    return [view_of(one, now_s) for one in found]
