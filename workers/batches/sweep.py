"""Sees to it that every batch that has not ended has a job, whatever became of the last one."""

from __future__ import annotations

from dataclasses import replace

import structlog

from contracts.batches import Batch, BatchStore
from contracts.errors import HeadstartError
from contracts.jobs import JobState
from contracts.ports import JobQueue
from workers.handlers.batch import KIND
from workers.queues import BATCH

_WAITING = frozenset({JobState.QUEUED.value, JobState.SCHEDULED.value})

_log = structlog.get_logger(__name__)


class Sweep:
    """Queues jobs for batches: new ones, and those whose job failed for good or was lost."""

    def __init__(self, batches: BatchStore, jobs: JobQueue) -> None:
        self._batches = batches
        self._jobs = jobs

    async def queue_due(self) -> int:
        """How many jobs were queued. Raises Transient when a store is away."""
        queued = 0
        # Oldest first: whoever came first is begun first.
        for batch in reversed(await self._batches.list()):
            if not batch.has_ended and not await self._has_job(batch):
                queued += await self._queue(batch)
        return queued

    async def _has_job(self, batch: Batch) -> bool:
        if not batch.job_id:
            return False
        try:
            status = self._jobs.status(batch.job_id)
        except HeadstartError as error:
            _log.warning("batch_job_unreadable", batch=batch.batch_id, error=str(error))
            return False
        if status is None:
            return False
        if status.get("state") == JobState.STARTED.value:
            # Its process may be dead, and RQ finds out later than we do.
            return await self._batches.is_taken(batch.batch_id)
        return status.get("state") in _WAITING

    async def _queue(self, batch: Batch) -> int:
        # Named by the batch's revision: two sweeps at once name the same job.
        job_id = f"{batch.batch_id}-{batch.revision}"
        if await self._batches.replace(replace(batch, job_id=job_id)) is None:
            return 0
        queued = self._jobs.enqueue(BATCH, KIND, {"batch_id": batch.batch_id}, job_id)
        _log.info("batch_job_queued", batch=batch.batch_id, job_id=job_id)
        return int(queued)
