"""Background jobs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from fastapi import APIRouter, Query

from api.control import schemas
from api.control.errors import ApiError, not_found
from api.control.insight_schemas import ChoreStarted, ChoreView, JobQueuePage
from api.control.insight_views import chore_view
from api.control.paging import Limit
from api.control.room import READ, WRITE, ControlRoom, Room
from contracts.jobs import JOB_ID_MAX, JobState

router = APIRouter(tags=["jobs"])

T = TypeVar("T")
_MAINTENANCE = "maintenance"
QueueName = Annotated[str, Query(max_length=100, description="Only this queue.")]


@router.get("/v1/jobs", dependencies=READ)
async def list_job_queues(room: Room) -> JobQueuePage:
    """Jobs of each queue, by state, and when maintenance is due."""
    counts = await room.ask_jobs(lambda jobs: jobs.counts())
    data = [schemas.JobQueueView(id=name, counts=dict(counts[name])) for name in sorted(counts)]
    return JobQueuePage(
        data=data, last_id=data[-1].id if data else None, maintenance=await _maintenance(room)
    )


@router.post("/v1/jobs/maintenance/{kind:path}", dependencies=WRITE, status_code=202)
async def start_maintenance(room: Room, kind: str) -> ChoreStarted:
    """Queue a chore now, whatever its schedule says; at most once a minute."""
    now_s = room.clock.now_s()
    known = [run.kind for run in room.ports.chores(now_s)]
    if kind not in known:
        raise not_found(
            f'no chore is called "{kind:.80}"; there are {", ".join(known)}',
            code="chore_not_found",
            param="kind",
        )
    job_id = f"{kind}-by-hand-{int(now_s // 60)}"
    queued = await room.ask_jobs(lambda jobs: jobs.enqueue(_MAINTENANCE, kind, {}, job_id))
    return ChoreStarted(id=job_id, queued=queued)


@router.get("/v1/jobs/failed", dependencies=WRITE)
async def list_failed_jobs(
    room: Room, queue: QueueName | None = None, limit: Limit = 20
) -> schemas.Page[schemas.JobView]:
    """Jobs that have failed for good, with the reason; the newest first within each queue."""
    names = sorted(await room.ask_jobs(lambda jobs: jobs.counts())) if queue is None else [queue]
    found: list[Mapping[str, object]] = []
    for name in names:
        found += await room.ask_jobs(lambda jobs, name=name: jobs.failed(name, limit=limit))  # type: ignore[misc] # mypy cannot infer a lambda's default
    data = [schemas.JobView(id=str(job["job_id"]), status=dict(job)) for job in found[:limit]]
    return schemas.Page(
        data=data, has_more=len(found) > limit, last_id=data[-1].id if data else None
    )


@router.post("/v1/jobs/{job_id:path}/retry", dependencies=WRITE)
async def retry_job(room: Room, job_id: str) -> schemas.JobView:
    """Queue a job once more that has failed for good."""
    await _status(room, job_id)
    if not await room.ask_jobs(lambda jobs: jobs.retry(job_id)):
        status = await _status(room, job_id)
        raise ApiError(
            409,
            "invalid_request_error",
            f"the job is {status['state']}: only one that has failed is tried again",
            code="job_not_failed",
        )
    return schemas.JobView(id=job_id, status=dict(await _status(room, job_id)))


@router.post("/v1/jobs/{job_id:path}/cancel", dependencies=WRITE)
async def cancel_job(room: Room, job_id: str) -> schemas.JobView:
    """Take a job out of its queue, or break it off where it runs."""
    await _status(room, job_id)
    if not await room.ask_jobs(lambda jobs: jobs.drop(job_id)):
        status = await _status(room, job_id)
        if status["state"] != JobState.STARTED.value or room.ports.results is None:
            raise ApiError(
                409,
                "invalid_request_error",
                f"the job is {status['state']}: there is nothing to cancel",
                code="job_not_cancellable",
            )
        await room.ask(room.ports.results.cancel(job_id))
    return schemas.JobView(id=job_id, status=dict(await _status(room, job_id)))


@router.get("/v1/jobs/{job_id:path}", dependencies=WRITE)
async def get_job(room: Room, job_id: str) -> schemas.JobView:
    """State, times, result or error of one job.

    Its result is somebody's answer, so it is shown to those who may change things, alone.
    """
    return schemas.JobView(id=job_id, status=dict(await _status(room, job_id)))


async def _maintenance(room: ControlRoom) -> list[ChoreView]:
    """Each chore with the state of its last time."""
    found = []
    for run in room.ports.chores(room.clock.now_s()):
        last = run.last_job_id
        status = None
        if last is not None:
            status = await room.ask_jobs(lambda jobs, last=last: jobs.status(last))  # type: ignore[misc] # mypy cannot infer a lambda's default
        found.append(chore_view(run, None if status is None else str(status["state"])))
    return found


async def _status(room: ControlRoom, job_id: str) -> Mapping[str, object]:
    status = None
    if 0 < len(job_id) <= JOB_ID_MAX:
        status = await room.ask_jobs(lambda jobs: jobs.status(job_id))
    if status is None:
        raise not_found(
            "no job has this id, or it is past its retention", code="job_not_found", param="job_id"
        )
    return status
