"""Queues maintenance when it is due, whoever looks and however often."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from contracts.errors import HeadstartError
from contracts.ports import Clock, JobQueue
from workers.queues import MAINTENANCE
from workers.schedule import CATCH_UP_S, Chore, due_run

log = structlog.get_logger(__name__)


class Chores:
    """Looks at the clock between jobs; the job's id keeps a run from being queued twice.

    Parameters
    ----------
    jobs : JobQueue
        Where runs are queued.
    clock : Clock
        Cron lines are read in its time.
    """

    def __init__(self, jobs: JobQueue, clock: Clock, chores: Sequence[Chore]) -> None:
        self._jobs = jobs
        self._clock = clock
        self._chores = chores
        self._after_s = clock.now_s() - CATCH_UP_S
        self._failing = False

    def queue_due(self) -> None:
        """Queue what fell due since the last call; what could not be queued is due again."""
        now_s = self._clock.now_s()
        try:
            for chore in self._chores:
                run = due_run(chore, after_s=self._after_s, until_s=now_s)
                if run is not None and self._jobs.enqueue(MAINTENANCE, run.kind, {}, run.job_id):
                    log.info("chore_queued", kind=run.kind, job_id=run.job_id)
        except HeadstartError as error:
            if not self._failing:
                log.warning("chores_failing", error=str(error))
            self._failing = True
            return
        if self._failing:
            log.info("chores_recovered")
        self._failing = False
        self._after_s = now_s
