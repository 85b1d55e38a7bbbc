"""Background jobs in memory: the queue, the results, and what handlers work on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping

from contracts.config import JobQueueConfig
from contracts.errors import Invalid, Transient
from contracts.jobs import CANCELLED, JobState, check_job
from contracts.ports import Exchange, StoredAnswer
from simulator.memory_streams import Faulty


class MemoryJobQueue(Faulty):
    """``JobQueue`` in memory: jobs stay queued until a test moves them on.

    ``queues`` None: any queue is taken, without bounds.
    """

    def __init__(self, queues: Mapping[str, JobQueueConfig] | None = None) -> None:
        self._queues = queues
        self._jobs: dict[str, dict[str, object]] = {}

    def enqueue(self, queue: str, kind: str, payload: Mapping[str, object], job_id: str) -> bool:
        """Whether it was new."""
        self._check()
        if self._queues is not None:
            capacity = check_job(self._queues, queue, kind, payload, job_id).capacity
            if self.counts()[queue][JobState.QUEUED] >= capacity:
                raise Transient(f"queue {queue} is full: {capacity} jobs wait")
        if job_id in self._jobs:
            return False
        self._jobs[job_id] = {
            "job_id": job_id,
            "queue": queue,
            "kind": kind,
            "payload": json.loads(json.dumps(payload)),
            "state": JobState.QUEUED.value,
            "result": None,
            "error": None,
        }
        return True

    def failed(self, queue: str, *, limit: int) -> tuple[Mapping[str, object], ...]:
        """The jobs that have failed, the newest first."""
        self._check()
        if self._queues is not None and queue not in self._queues:
            raise Invalid(f'queue "{queue:.80}": must be one of {", ".join(self._queues)}')
        found = [
            dict(job) for job in self._jobs.values() if job["queue"] == queue and _has_failed(job)
        ]
        return tuple(reversed(found))[:limit]

    def retry(self, job_id: str) -> bool:
        """Whether it had failed; then it is queued."""
        self._check()
        job = self._jobs.get(job_id)
        if job is None or not _has_failed(job):
            return False
        job |= {"state": JobState.QUEUED.value, "error": None}
        return True

    def drop(self, job_id: str) -> bool:
        """Whether it waited; then it has failed as cancelled."""
        self._check()
        job = self._jobs.get(job_id)
        if job is None or job["state"] not in (JobState.QUEUED.value, JobState.SCHEDULED.value):
            return False
        job |= {"state": JobState.FAILED.value, "error": CANCELLED}
        return True

    def job_ids(self, queue: str) -> list[str]:
        """The jobs of one queue in the order in which they came."""
        return [job_id for job_id, job in self._jobs.items() if job["queue"] == queue]

    def move(
        self, job_id: str, state: str, *, result: object = None, error: str | None = None
    ) -> None:
        """Put a job into another state, as a worker would."""
        self._jobs[job_id] |= {"state": state, "result": result, "error": error}

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Jobs by queue and state."""
        self._check()
        counts: dict[str, dict[str, int]] = {
            name: {state.value: 0 for state in JobState} for name in self._queues or ()
        }
        for job in self._jobs.values():
            states = counts.setdefault(str(job["queue"]), {})
            states[str(job["state"])] = states.get(str(job["state"]), 0) + 1
        return counts

    def status(self, job_id: str) -> Mapping[str, object] | None:
        """What is known of one job."""
        self._check()
        job = self._jobs.get(job_id)
        return None if job is None else dict(job)


def _has_failed(job: Mapping[str, object]) -> bool:
    return job["state"] == JobState.FAILED.value and job["error"] != CANCELLED


class MemoryJobResults(Faulty):
    """``JobResults`` in memory."""

    def __init__(self) -> None:
        self._results: dict[str, str] = {}
        self._cancelled: set[str] = set()

    async def get(self, job_id: str) -> Mapping[str, object] | None:
        """The job's result."""
        self._check()
        stored = self._results.get(job_id)
        return None if stored is None else json.loads(stored)

    async def commit(self, job_id: str, result: Mapping[str, object]) -> bool:
        """Whether this is the job's result now."""
        self._check()
        if job_id in self._results:
            return False
        self._results[job_id] = json.dumps(result, allow_nan=False)
        return True

    async def cancel(self, job_id: str) -> None:
        """Have a run broken off."""
        self._check()
        self._cancelled.add(job_id)

    async def is_cancelled(self, job_id: str) -> bool:
        """Whether it was cancelled."""
        self._check()
        return job_id in self._cancelled


class MemoryInferenceGateway(Faulty):
    """``InferenceGateway`` that gives one answer to all, and remembers what it was asked.

    ``gate``: while it is set to an unset event, calls wait for it; ``cancelled`` counts those
    that were broken off there.
    """

    def __init__(self, body: bytes = b"{}", *, content_type: str = "application/json") -> None:
        self.answer = StoredAnswer(status=200, content_type=content_type, body=body)
        self.calls: list[tuple[str, bytes, dict[str, str]]] = []
        self.asked = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.cancelled = 0
        self.script: Callable[[str, bytes], Exchange] | None = None

    async def post(self, path: str, body: bytes, headers: Mapping[str, str]) -> StoredAnswer:
        """The answer."""
        self.calls.append((path, body, dict(headers)))
        self.asked.set()
        self._check()
        try:
            if self.gate is not None:
                await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return self.answer

    async def exchange(self, path: str, body: bytes, headers: Mapping[str, str]) -> Exchange:
        """What ``script`` says to this request; the one answer where there is none."""
        answer = await self.post(path, body, headers)
        if self.script is not None:
            return self.script(path, body)
        return Exchange(status=answer.status, body=answer.body, content_type=answer.content_type)


class MemoryTrimmable(Faulty):
    """``Trimmable`` over the given ages, oldest first."""

    def __init__(self, ages_s: tuple[float, ...] = ()) -> None:
        self.ages_s = list(ages_s)

    async def trim(self, *, max_age_s: float, max_entries: int) -> int:
        """Remove what is too old or too much."""
        self._check()
        before = len(self.ages_s)
        kept = [age_s for age_s in self.ages_s if age_s <= max_age_s]
        self.ages_s = kept[max(0, len(kept) - max_entries) :]
        return before - len(self.ages_s)


class MemoryNotifier(Faulty):
    """``Notifier`` that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, bytes, dict[str, str]]] = []

    async def notify(self, url: str, body: bytes, headers: Mapping[str, str]) -> None:
        """Take it."""
        self._check()
        self.told.append((url, body, dict(headers)))
