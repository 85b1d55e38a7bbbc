"""Requests that may wait: taken at once, served when there is leeway, their answers kept a day."""

from __future__ import annotations

import base64
import json
import secrets
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Header, Request, Response
from pydantic import Field

from api.control.errors import ApiError, not_found
from api.control.room import Caller, ControlRoom, Room
from api.control.schemas import ErrorBody, Schema
from api.control.users import User
from api.gateway.detect import Wishes
from api.gateway.keys import class_of
from contracts.events import PriorityClass
from contracts.jobs import BACKGROUND_PATHS, CANCELLED, INFERENCE_KIND, JobState, read_request
from contracts.model_names import may_use
from contracts.ports import JobResults

router = APIRouter(tags=["background"])

QUEUE, FALLBACK = "background", "realtime-fallback"
_PREFIX = "bg_"
_STATUSES = {
    JobState.QUEUED: "queued",
    JobState.SCHEDULED: "queued",
    JobState.STARTED: "in_progress",
    JobState.FINISHED: "completed",
    JobState.FAILED: "failed",
}

_OVER: dict[int | str, dict[str, Any]] = {
    410: {"model": ErrorBody, "description": "It has failed, or nobody wants it any more."}
}

T = TypeVar("T")


class BackgroundJob(Schema):
    """One request that waits, runs or is over."""

    id: str = Field(description="Whoever knows it may read the answer: keep it to yourself.")
    object: Literal["background.job"] = "background.job"
    status: Literal["queued", "in_progress", "completed", "failed", "cancelled"]
    created_at: int | None
    started_at: int | None
    ended_at: int | None
    error: str | None
    status_url: str
    result_url: str


@router.post("/v1/background/{job_id:path}/cancel")
async def cancel_job(room: Room, _user: Caller, job_id: str) -> BackgroundJob:
    """Take it out of the queue, or break it off; one that is over stays as it is."""
    job = await _find(room, job_id)
    if job.status == "in_progress":
        await room.ask(_results(room).cancel(job_id))
    elif job.status == "queued" and not await room.ask_jobs(lambda jobs: jobs.drop(job_id)):
        # It was begun in between.
        await room.ask(_results(room).cancel(job_id))
    return await _find(room, job_id)


@router.post("/v1/background/{path:path}", status_code=202)
async def add_job(
    room: Room,
    user: Caller,
    path: str,
    request: Request,
    response: Response,
    x_headstart_class: Annotated[PriorityClass | None, Header()] = None,
    x_headstart_webhook: Annotated[str | None, Header(max_length=2048)] = None,
) -> BackgroundJob:
    """Take a request for any inference path; its body is the request's own.

    ``X-Headstart-Class``: ``realtime`` for what is to be served soon, else it waits for leeway.
    ``X-Headstart-Webhook``: a URL that is called once it is over.
    """
    payload: dict[str, object] = {"path": f"/{path}", "body": await _body(request)}
    if x_headstart_webhook is not None:
        payload["webhook"] = x_headstart_webhook
        room.ports.check_webhook(x_headstart_webhook)
    if f"/{path}" not in BACKGROUND_PATHS:
        raise not_found(
            f"/{path} is no path that can be asked in the background; "
            f"there are {', '.join(sorted(BACKGROUND_PATHS))}",
            param="path",
        )
    wanted = read_request(payload)
    if not may_use(user.models, wanted.model):
        raise ApiError(
            403,
            "permission_error",
            f"your key may not use the model {wanted.model:.80}",
            code="model_not_allowed",
            param="model",
        )
    queue = _queue_of(user, x_headstart_class)
    job_id = _PREFIX + secrets.token_hex(16)
    await room.ask_jobs(lambda jobs: jobs.enqueue(queue, INFERENCE_KIND, payload, job_id))
    job = await _find(room, job_id)
    response.headers["Location"] = job.status_url
    return job


@router.get("/v1/background/{job_id:path}/result", response_class=Response, responses=_OVER)
async def get_result(room: Room, _user: Caller, job_id: str) -> Response:
    """The answer as the model gave it, once it is there."""
    job = await _find(room, job_id)
    if job.status in ("failed", "cancelled"):
        raise ApiError(
            410, "job_failed", job.error or "the job has failed", code=f"job_{job.status}"
        )
    kept = await room.ask(_results(room).get(job_id))
    if kept is None:
        raise ApiError(
            409,
            "not_ready",
            f"the job is {job.status}: there is no answer yet",
            code="result_not_ready",
            retry_after_s=1.0,
        )
    body = str(kept["body"])
    content = base64.b64decode(body) if kept.get("encoding") == "base64" else body.encode()
    return Response(
        content, status_code=int(str(kept["status"])), media_type=str(kept["content_type"])
    )


@router.get("/v1/background/{job_id:path}")
async def get_job(room: Room, _user: Caller, job_id: str) -> BackgroundJob:
    """Where a request is."""
    return await _find(room, job_id)


def _queue_of(user: User, asked: PriorityClass | None) -> str:
    """Where a request waits: realtime ones apart, as far as the caller's key allows."""
    allowed = class_of(user.key, Wishes(priority=asked), PriorityClass.BACKGROUND)
    if allowed is None:
        raise ApiError(
            403,
            "permission_error",
            f"your key may not ask for the class {asked.value if asked else ''}",
            code="class_not_allowed",
            param="X-Headstart-Class",
        )
    return FALLBACK if allowed is PriorityClass.REALTIME else QUEUE


async def _body(request: Request) -> Mapping[str, Any]:
    try:
        body = json.loads(await request.body())
    except (ValueError, RecursionError) as error:
        raise ApiError(
            400, "invalid_request_error", f"the body is no JSON: {error}", code="invalid_json"
        ) from error
    if not isinstance(body, dict):
        raise ApiError(
            400, "invalid_request_error", "the body must be a JSON object", code="invalid_body"
        )
    return body


async def _find(room: ControlRoom, job_id: str) -> BackgroundJob:
    status = None
    if job_id.startswith(_PREFIX) and len(job_id) <= 200:
        status = await room.ask_jobs(lambda jobs: jobs.status(job_id))
    if status is None:
        raise not_found(
            "no job has this id, or it is past its retention", code="job_not_found", param="job_id"
        )
    error = status.get("error")
    word = _STATUSES[JobState(str(status["state"]))]
    if word == "failed" and error == CANCELLED:
        word = "cancelled"
    return BackgroundJob.model_validate(
        {
            "id": job_id,
            "status": word,
            "created_at": _whole(status.get("created_at_s")),
            "started_at": _whole(status.get("started_at_s")),
            "ended_at": _whole(status.get("ended_at_s")),
            "error": error if word in ("failed", "cancelled") else None,
            "status_url": f"/v1/background/{job_id}",
            "result_url": f"/v1/background/{job_id}/result",
        }
    )


def _whole(at_s: object) -> int | None:
    return int(at_s) if isinstance(at_s, int | float) else None


def _results(room: ControlRoom) -> JobResults:
    if room.ports.results is None:
        raise ApiError(503, "not_configured", "no job queue is set up here", code="no_job_queue")
    return room.ports.results
