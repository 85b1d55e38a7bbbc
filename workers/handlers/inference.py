"""One background request: sent through the gateway, its whole answer kept as the result."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Mapping
from typing import TypeVar

from contracts.errors import HeadstartError, Transient
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.jobs import INFERENCE_KIND, JobState, read_request
from workers.admission import Candidate, admit
from workers.queues import CLASSES
from workers.retry import Held
from workers.tools import JobContext, Tools

KIND = INFERENCE_KIND

T = TypeVar("T")

_LOOK_LIMIT_S = 5.0
_TEXT_TYPES = ("text/", "application/json", "application/x-ndjson")


async def run(
    payload: Mapping[str, object], context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """Serve one request and return the answer as a result.

    Cancelling it closes the connection to the gateway, which cancels the work upstream.

    Raises
    ------
    Invalid
        The payload is no request.
    Held
        The request may not start yet.
    Transient, Permanent
        What the gateway said.
    """
    request = read_request(payload)
    priority = CLASSES.get(context.queue, PriorityClass.BACKGROUND)
    await _wait_for_leave(request.model, priority, context, tools)
    started_s = tools.clock.monotonic_s()
    answer = await tools.gateway.post(
        request.path,
        request.body,
        {
            "X-Headstart-Class": priority.value,
            # A job can be put back at any time, so whoever waits may go first.
            "X-Headstart-Preempt": "anytime",
            # The same for each run of the job, so that its requests can be told to be one.
            "X-Request-ID": context.job_id,
        },
    )
    text = answer.content_type.startswith(_TEXT_TYPES)
    return {
        "status": answer.status,
        "content_type": answer.content_type,
        "encoding": "utf-8" if text else "base64",
        "body": (
            answer.body.decode("utf-8", "replace")
            if text
            else base64.b64encode(answer.body).decode("ascii")
        ),
        "took_s": round(tools.clock.monotonic_s() - started_s, 3),
    }


async def _wait_for_leave(
    model: ModelId, priority: PriorityClass, context: JobContext, tools: Tools
) -> None:
    """Return when the job may start; raise Held when it must come back later."""
    if priority is PriorityClass.REALTIME:
        return
    running, waiting = await _others(context.queue, tools)
    admission = admit(
        Candidate(
            model=model,
            priority=priority,
            waited_s=context.waited_s,
            others_running=running,
            others_waiting=waiting,
        ),
        world=await _look(tools, tools.snapshots.world()),
        limits=await _look(tools, tools.snapshots.limits(priority)),
        now_s=tools.clock.now_s(),
        config=tools.admission,
    )
    if not admission.admitted:
        raise Held(admission.reason.value, after_s=admission.retry_after_s)


async def _look(tools: Tools, question: Awaitable[T | None]) -> T | None:
    """The answer; None when nobody tells, and then it holds no job."""
    try:
        async with tools.clock.timeout(_LOOK_LIMIT_S):
            return await question
    except (Transient, TimeoutError):
        return None


async def _others(queue: str, tools: Tools) -> tuple[int, int]:
    """Jobs of the same queue that run, and that wait, beside this one."""
    try:
        counts = (await asyncio.to_thread(tools.jobs.counts)).get(queue, {})
    except HeadstartError:
        return 0, 0
    waiting = counts.get(JobState.QUEUED, 0) + counts.get(JobState.SCHEDULED, 0)
    return max(0, counts.get(JobState.STARTED, 0) - 1), waiting
