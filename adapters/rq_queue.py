"""Background jobs in RQ: ``JobQueue`` over Redis, with JSON alone and bounded queues."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

import redis
from rq import Queue, Retry, Worker
from rq.exceptions import DuplicateJobError, NoSuchJobError
from rq.job import Job, JobStatus
from rq.registry import (
    FailedJobRegistry,
    FinishedJobRegistry,
    ScheduledJobRegistry,
    StartedJobRegistry,
)
from rq.serializers import JSONSerializer
from rq.utils import now

from adapters.redis_client import mapped_errors
from contracts.config import JobQueueConfig
from contracts.errors import Invalid, Transient
from contracts.jobs import CANCELLED, JobState, check_job
from contracts.redis_keys import job_lost, job_result, job_unreadable

ENTRY = "workers.jobs.run"
"""The name that jobs carry. Workers run nothing else under any other name, so that who can
write to Redis can queue work but not choose code."""

_STATES = {
    JobStatus.STARTED: JobState.STARTED,
    JobStatus.FINISHED: JobState.FINISHED,
    JobStatus.FAILED: JobState.FAILED,
    JobStatus.STOPPED: JobState.FAILED,
    JobStatus.CANCELED: JobState.FAILED,
    JobStatus.SCHEDULED: JobState.SCHEDULED,
    JobStatus.DEFERRED: JobState.SCHEDULED,
}
_REGISTRIES = {
    JobState.STARTED: StartedJobRegistry,
    JobState.FINISHED: FinishedJobRegistry,
    JobState.FAILED: FailedJobRegistry,
    JobState.SCHEDULED: ScheduledJobRegistry,
}
_WAITING = frozenset({JobStatus.QUEUED, JobStatus.SCHEDULED, JobStatus.DEFERRED})
_ERROR_MAX = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerBeat:
    """A worker that is registered for a queue, and how long ago (real seconds) it said so."""

    name: str
    host: str
    age_s: float


class RqJobQueue:
    """``contracts.ports.JobQueue`` in RQ.

    Parameters
    ----------
    client : redis.Redis
        From ``connect_blocking``; the queue does not close it.
    queues : mapping
        The queues that there are, ``workers.queues.QUEUES``.

    Notes
    -----
    The capacity is looked at before the job is queued, not in one step with it, so that many
    callers at once may go over it by as many jobs as they are.
    """

    def __init__(self, client: redis.Redis, queues: Mapping[str, JobQueueConfig]) -> None:
        self._client = client
        self._queues = queues

    def enqueue(self, queue: str, kind: str, payload: Mapping[str, object], job_id: str) -> bool:
        """Queue a job; False when its id is known already.

        Raises Invalid for what can never be queued, Transient when the queue is full or Redis
        does not take it.
        """
        config = check_job(self._queues, queue, kind, payload, job_id)
        rq_queue = Queue(queue, connection=self._client, serializer=JSONSerializer)
        with mapped_errors("queue a job"), suppress(DuplicateJobError):
            if rq_queue.count >= config.capacity:
                raise Transient(f"queue {queue} is full: {config.capacity} jobs wait")
            rq_queue.enqueue_call(
                ENTRY,
                args=(kind, dict(payload)),
                timeout=config.run_limit_s,
                result_ttl=config.result_ttl_s,
                failure_ttl=config.failure_ttl_s,
                # RQ would put the arguments here, prompts included, and log them.
                description=kind,
                job_id=job_id,
                retry=Retry(max=config.crash_retries),
                unique=True,
            )
            return True
        return False

    def failed(self, queue: str, *, limit: int) -> tuple[Mapping[str, object], ...]:
        """Dead letters, the newest first. Raises Transient, and Invalid for no queue of ours."""
        if queue not in self._queues:
            raise Invalid(f'queue "{queue:.80}": must be one of {", ".join(self._queues)}')
        with mapped_errors("list failed jobs"):
            registry = FailedJobRegistry(queue, connection=self._client, serializer=JSONSerializer)
            ids = registry.get_job_ids(end=limit - 1, desc=True, cleanup=False)
        found = []
        for job_id in ids:
            with suppress(Invalid):
                status = self.status(job_id)
                if status is not None:
                    found.append(status)
        return tuple(found)

    def retry(self, job_id: str) -> bool:
        """Queue a failed job once more; whether it had failed. Raises Transient."""
        with mapped_errors("retry a job"):
            try:
                job = Job.fetch(job_id, connection=self._client, serializer=JSONSerializer)
            except (NoSuchJobError, ValueError, KeyError, TypeError):
                return False
            if job.get_status(refresh=False) is not JobStatus.FAILED:
                return False
            job.meta = {"attempts": {}}  # an empty meta would not be written
            job.retries_left = self._queues[job.origin].crash_retries
            job.save()
            job.requeue()
            return True

    def drop(self, job_id: str) -> bool:
        """Take a job that waits out of its queue; whether it did. Raises Transient."""
        with mapped_errors("drop a job"):
            try:
                job = Job.fetch(job_id, connection=self._client, serializer=JSONSerializer)
            except (NoSuchJobError, ValueError, KeyError, TypeError):
                return False
            if job.get_status(refresh=False) not in _WAITING:
                return False
            job.meta["error"] = CANCELLED
            job.save_meta()  # type: ignore[no-untyped-call] # RQ's
            job.cancel()
            return True

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Jobs by queue and state. Raises Transient."""
        with mapped_errors("count jobs"), self._client.pipeline(transaction=False) as pipeline:
            for name in self._queues:
                pipeline.llen(Queue(name, connection=self._client).key)
                for registry in _REGISTRIES.values():
                    pipeline.zcard(registry(name, connection=self._client).key)
            numbers = iter(pipeline.execute())
        states = [state.value for state in (JobState.QUEUED, *_REGISTRIES)]
        return {name: {state: int(next(numbers)) for state in states} for name in self._queues}

    def status(self, job_id: str) -> Mapping[str, object] | None:
        """What is known of one job; None when it is unknown. Raises Transient."""
        with mapped_errors("read a job"):
            try:
                job = Job.fetch(job_id, connection=self._client, serializer=JSONSerializer)
                latest = job.latest_result()
            except NoSuchJobError:
                return self._set_aside(job_id)
            except (ValueError, KeyError, TypeError) as error:
                raise Invalid(f"job {job_id} cannot be read: {error}") from error
            stored = self._client.get(job_result(job_id))
        status = job.get_status(refresh=False)
        state = _STATES.get(status, JobState.QUEUED)
        failed = state is JobState.FAILED and latest is not None
        trace = latest.exc_string if failed and latest is not None else None
        return {
            "job_id": job_id,
            "queue": job.origin,
            "kind": job.description,
            "state": state.value,
            "enqueued_at_s": _epoch_s(job.enqueued_at),
            "created_at_s": _epoch_s(job.created_at),
            "started_at_s": _epoch_s(job.started_at),
            "ended_at_s": _epoch_s(job.ended_at),
            "attempts": job.meta.get("attempts"),
            "result": json.loads(stored) if isinstance(stored, bytes) else None,
            "error": _error(job.meta, trace) if state is not JobState.FINISHED else None,
        }

    def workers(self, queue: str) -> tuple[WorkerBeat, ...]:
        """Who serves a queue. Raises Transient."""
        with mapped_errors("look for workers"):
            rq_queue = Queue(queue, connection=self._client, serializer=JSONSerializer)
            found = Worker.all(queue=rq_queue, serializer=JSONSerializer)
        return tuple(
            WorkerBeat(
                name=worker.name,
                host=worker.hostname or "",
                age_s=max(0.0, (now() - worker.last_heartbeat).total_seconds()),
            )
            for worker in found
            if worker.last_heartbeat is not None
        )

    def _set_aside(self, job_id: str) -> Mapping[str, object] | None:
        if self._client.exists(job_unreadable(job_id)):
            said = "its record in Redis could not be read"
        elif self._client.exists(job_lost(job_id)):
            said = "its record vanished from Redis before it ran: is maxmemory-policy noeviction?"
        else:
            return None
        return {"job_id": job_id, "state": JobState.FAILED.value, "error": said}


def _error(meta: Mapping[str, object], trace: str | None) -> str | None:
    """What the job said of its last run, else the last line of what RQ knows."""
    said = meta.get("error")
    if isinstance(said, str):
        return said[:_ERROR_MAX]
    lines = (trace or "").strip().splitlines()
    return lines[-1][:_ERROR_MAX] if lines else None


def _epoch_s(moment: datetime | None) -> float | None:
    return None if moment is None else moment.timestamp()
