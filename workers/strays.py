"""Jobs that wait by their own record and stand in no list: a refused write left them between two.

RQ moves a job in several steps. Where Redis takes the first and refuses the next (full, read only),
the job is nowhere, and nobody would ever run it.
"""

from __future__ import annotations

from typing import Any

import structlog
from rq import Queue
from rq.job import Job, JobStatus

STRAY_S = 30.0
"""So long it has to be seen in no list: a job that moves is in none for a moment."""

_AT_ONCE = 1000
_MAX_SEEN = 10_000
_VANISHED_S = 3600.0
"""What was seen first so long ago and is no stray by now was not found again: it is gone."""

_PREFIX = Job.redis_job_namespace_prefix
_OPEN = frozenset(
    each.value.encode() for each in (JobStatus.QUEUED, JobStatus.SCHEDULED, JobStatus.STARTED)
)

log = structlog.get_logger(__name__)


class Strays:
    """Looks through a part of all jobs at each call, and queues again what stands in no list.

    Running one twice does no harm: the first result stands.
    """

    def __init__(self, client: Any) -> None:
        self._client = client
        self._cursor = 0
        self._seen: dict[str, float] = {}

    def recover(self, queue: Queue, now_s: float) -> tuple[str, ...]:
        """Look on from where the last call ended; the jobs that were queued again.

        ``now_s``: seconds of any clock that goes on.
        """
        self._cursor, keys = self._client.scan(self._cursor, match=f"{_PREFIX}*", count=_AT_ONCE)
        found = []
        for key in keys:
            job_id = key.decode().removeprefix(_PREFIX)
            if not self._is_stray(queue, key, job_id):
                self._seen.pop(job_id, None)
            elif now_s - self._first_seen_s(job_id, now_s) >= STRAY_S:
                self._seen.pop(job_id, None)
                self._client.hset(key, "status", JobStatus.QUEUED.value)
                queue.push_job_id(job_id)
                log.warning("job_recovered", job_id=job_id, queue=queue.name, why="in no list")
                found.append(job_id)
        return tuple(found)

    def _is_stray(self, queue: Queue, key: bytes, job_id: str) -> bool:
        status, origin = self._client.hmget(key, "status", "origin")
        if status not in _OPEN or origin != queue.name.encode():
            return False
        return not (
            self._client.lpos(queue.key, job_id) is not None
            or job_id in queue.scheduled_job_registry
            or job_id in queue.started_job_registry
            or job_id in queue.intermediate_queue.get_job_ids()
        )

    def _first_seen_s(self, job_id: str, now_s: float) -> float:
        if job_id not in self._seen and len(self._seen) >= _MAX_SEEN:
            # Those that are left out have their turn when these are queued again.
            self._seen = {one: s for one, s in self._seen.items() if now_s - s < _VANISHED_S}
            if len(self._seen) >= _MAX_SEEN:
                return now_s
        return self._seen.setdefault(job_id, now_s)
