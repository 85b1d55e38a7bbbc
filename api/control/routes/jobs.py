"""Background jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fastapi import APIRouter

from api.control import schemas
from api.control.errors import ApiError, not_found
from api.control.room import READ, WRITE, ControlRoom, Room
from contracts.ports import JobQueue

router = APIRouter(tags=["jobs"])

T = TypeVar("T")


@router.get("/v1/jobs", dependencies=READ)
async def list_job_queues(room: Room) -> schemas.Page[schemas.JobQueueView]:
    """Jobs of each queue, by state."""
    counts = await _ask(room, lambda jobs: jobs.counts())
    data = [schemas.JobQueueView(id=name, counts=dict(counts[name])) for name in sorted(counts)]
    return schemas.Page(data=data, last_id=data[-1].id if data else None)


@router.get("/v1/jobs/{job_id:path}", dependencies=WRITE)
async def get_job(room: Room, job_id: str) -> schemas.JobView:
    """State, times, result or error of one job.

    Its result is somebody's answer, so it is shown to those who may change things, alone.
    """
    status = None
    if 0 < len(job_id) <= 200:
        status = await _ask(room, lambda jobs: jobs.status(job_id))
    if status is None:
        raise not_found(
            "no job has this id, or it is past its retention", code="job_not_found", param="job_id"
        )
    return schemas.JobView(id=job_id, status=dict(status))


async def _ask(room: ControlRoom, question: Callable[[JobQueue], T]) -> T:
    jobs = room.ports.jobs
    if jobs is None:
        raise ApiError(503, "not_configured", "no job queue is set up here", code="no_job_queue")
    # The port is synchronous; a thread keeps a slow store from holding up everybody else.
    return await room.ask(asyncio.to_thread(question, jobs))
