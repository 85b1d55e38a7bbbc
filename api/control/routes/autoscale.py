"""How many there shall be: read by people, and by whoever scales by a number (KEDA, an HPA)."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from api.control.errors import ApiError, not_found
from api.control.nearest import nearest_names
from api.control.room import READ, ControlRoom, Room
from api.control.schemas import Page
from contracts.jobs import JobState
from contracts.reasons import Reason, explain
from contracts.scaling import Scaling

router = APIRouter(tags=["autoscale"], dependencies=READ)

STALE_S = 60.0
"""A number that is older is not given: whoever reads it then keeps what there is."""

WORKERS = "workers-"
"""Targets of this prefix are the worker processes of a queue: one for each job, within bounds."""


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
        stale=now_s - scaling.at_s > STALE_S,
    )


async def _scalings(room: ControlRoom) -> dict[str, Scaling]:
    store = room.ports.scaling
    return {} if store is None else dict(await room.ask(store.scalings()))


async def _worker_views(room: ControlRoom) -> list[ScalingView]:
    if room.ports.jobs is None:
        return []
    counts = await room.ask_jobs(lambda jobs: jobs.counts())
    now_s = room.clock.now_s()
    views = []
    for queue, states in sorted(counts.items()):
        waiting = states.get(JobState.QUEUED, 0)
        running = states.get(JobState.STARTED, 0)
        wanted = min(max(1, waiting + running), room.max_workers)
        views.append(
            ScalingView(
                id=WORKERS + queue,
                replicas=wanted,
                reason=Reason.LIVE_NEED.value,
                explanation=explain(Reason.LIVE_NEED),
                evidence={"waiting": waiting, "running": running},
                at_s=now_s,
            )
        )
    return views
