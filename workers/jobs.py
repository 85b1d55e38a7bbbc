"""What RQ calls: decode the arguments, run the handler, and say what becomes of the job.

RQ starts a process for each job. ``JobRunner`` is made in the worker and inherited by that
process, where ``open_tools`` opens its own connections; nothing is kept in module globals
and nothing is imported by a name that came from Redis.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import asdict
from types import FrameType, MappingProxyType
from typing import NoReturn, TypeAlias

import structlog
from rq import Retry, get_current_job
from rq.job import Job
from rq.utils import now

from contracts.errors import HeadstartError, Invalid, Permanent, Transient
from contracts.jobs import CANCELLED, JOB_ID_MAX
from workers.handlers import backtest, batch, inference, profiles, retention, retrain, webhook
from workers.queues import MAINTENANCE
from workers.retry import (
    DEFAULT_POLICY,
    Attempts,
    RetryDecision,
    RetryPolicy,
    Stopped,
    Verdict,
    decide,
)
from workers.tools import JobContext, Tools

Handler: TypeAlias = Callable[
    [Mapping[str, object], JobContext, Tools], Awaitable[Mapping[str, object]]
]
OpenTools: TypeAlias = Callable[[], AbstractAsyncContextManager[Tools]]

KINDS: Mapping[str, Handler] = MappingProxyType(
    {
        backtest.KIND: backtest.run,
        batch.KIND: batch.run,
        inference.KIND: inference.run,
        profiles.KIND: profiles.run,
        retention.KIND: retention.run,
        retrain.KIND: retrain.run,
        webhook.KIND: webhook.run,
    }
)

_UNLIMITED = 2**31
"""RQ counts returned retries too; ``workers.retry`` alone decides when they end."""
_COMMIT_TRIES = 240
_COMMIT_PAUSE_S = 0.5
_LOOK_REAL_S = 1.0

log = structlog.get_logger(__name__)


class JobFailed(Exception):
    """Ends a job for good; RQ keeps its message as the reason."""


class JobRunner:
    """Runs one job at a time for RQ, in the job's own process.

    Parameters
    ----------
    open_tools : callable
        Opens the ports that handlers use; entered in the job's process.
    policy : RetryPolicy
        How patient to be with a job.
    time_scale : float
        Waits are decided in our clock's seconds and kept by RQ in real ones.
    kinds : mapping
        Kind of job to its handler.
    """

    def __init__(
        self,
        open_tools: OpenTools,
        *,
        policy: RetryPolicy = DEFAULT_POLICY,
        time_scale: float = 1.0,
        kinds: Mapping[str, Handler] = KINDS,
    ) -> None:
        self._open_tools = open_tools
        self._policy = policy
        self._time_scale = time_scale
        self._kinds = kinds
        self._stopping = self._unwanted = False
        self._running: tuple[asyncio.AbstractEventLoop, asyncio.Task[object]] | None = None

    def request_stop(self, _signum: int, _frame: FrameType | None) -> None:
        """Signal handler: break the job off and put it back. A result that is there stays."""
        self._stopping = True
        if self._running is not None:
            loop, task = self._running
            loop.call_soon_threadsafe(task.cancel)

    def run(self, *args: object, **kwargs: object) -> Retry | None:
        """Run the current job; what it returns tells RQ whether to queue it again.

        Raises
        ------
        JobFailed
            The job has failed for good.
        """
        job = get_current_job()
        assert job is not None
        attempts, decision = _attempts(job), None
        try:
            kind, payload = _read_arguments(args, kwargs)
            if kind not in self._kinds:
                raise Invalid(f'kind "{kind}": must be one of {", ".join(self._kinds)}')
            asyncio.run(self._perform(job, kind, payload))
        except HeadstartError as error:
            decision = decide(error, attempts=attempts, age_s=self._age_s(job), policy=self._policy)
            if decision.verdict is Verdict.GIVE_UP:
                self._announce_failure(job, args)
        return None if decision is None else self._carry_out(job, decision)

    async def _perform(self, job: Job, kind: str, payload: Mapping[str, object]) -> None:
        async with self._open_tools() as tools:
            if await tools.results.get(job.id) is not None:
                # An earlier run got as far as its result and died before RQ knew.
                await _announce(tools, job, payload, "completed")
                log.info("job_result_known", job_id=job.id, kind=kind)
                return
            context = JobContext(job_id=job.id, queue=job.origin, waited_s=self._age_s(job))
            async with _cancellable(job.id, tools, self._break_off):
                result = await self._handle(self._kinds[kind](payload, context, tools))
            await _commit(tools, job.id, result)
            await _announce(tools, job, payload, "completed")
            log.info("job_finished", job_id=job.id, queue=job.origin, kind=kind)

    def _announce_failure(self, job: Job, args: tuple[object, ...]) -> None:
        """Tell whoever wants to know; a queue that is away must not keep the job from its end."""

        async def announce() -> None:
            async with self._open_tools() as tools:
                await _announce(tools, job, args[1] if len(args) > 1 else None, "failed")

        try:
            asyncio.run(announce())
        except Transient as error:
            log.warning("job_end_untold", job_id=job.id, error=str(error))

    async def _handle(self, work: Awaitable[Mapping[str, object]]) -> Mapping[str, object]:
        """The handler's result; Stopped when a signal broke it off."""
        task = asyncio.ensure_future(work)
        self._running = (asyncio.get_running_loop(), task)
        if self._stopping:
            task.cancel()
        try:
            return await task
        except asyncio.CancelledError:
            if self._unwanted:
                raise Permanent(CANCELLED) from None
            if not self._stopping:
                raise
            raise Stopped("the worker stops") from None
        finally:
            self._running = None

    def _break_off(self) -> None:
        """Nobody wants the job any more."""
        self._unwanted = True
        if self._running is not None:
            self._running[1].cancel()

    def _age_s(self, job: Job) -> float:
        """Since the job was first queued, in our clock's seconds."""
        return max(0.0, (now() - job.created_at).total_seconds()) * self._time_scale

    def _carry_out(self, job: Job, decision: RetryDecision) -> Retry:
        """Remember the decision with the job and tell RQ."""
        job.meta["attempts"] = asdict(decision.attempts)
        job.meta["error"] = decision.reason
        job.save_meta()  # type: ignore[no-untyped-call] # RQ's
        facts = {"job_id": job.id, "queue": job.origin, "reason": decision.reason}
        if decision.verdict is Verdict.GIVE_UP:
            log.warning("job_failed", **facts, **asdict(decision.attempts))
            _fail(job, decision.reason)
        log.info("job_put_back", **facts, verdict=decision.verdict.value, after_s=decision.after_s)
        return Retry(
            max=_UNLIMITED,
            # RQ counts whole seconds; a wait that became none would be a busy loop.
            interval=math.ceil(decision.after_s / self._time_scale),
            enqueue_at_front=decision.verdict is Verdict.PUT_BACK,
        )


@asynccontextmanager
async def _cancellable(
    job_id: str, tools: Tools, break_off: Callable[[], None]
) -> AsyncIterator[None]:
    """While the block runs: look now and then whether the job is still wanted."""

    async def watch() -> None:
        while True:
            with suppress(Transient):
                if await tools.results.is_cancelled(job_id):
                    break_off()
                    return
            await tools.clock.sleep(_LOOK_REAL_S * tools.clock.scale)

    watching = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def _announce(tools: Tools, job: Job, payload: object, status: str) -> None:
    """Queue the call of the webhook that a job's payload names."""
    url = payload.get("webhook") if isinstance(payload, Mapping) else None
    if isinstance(url, str):
        told = {"url": url, "job_id": job.id, "status": status}
        await tools.aside(
            tools.jobs.enqueue, MAINTENANCE, webhook.KIND, told, f"{job.id}-webhook"[-JOB_ID_MAX:]
        )


async def _commit(tools: Tools, job_id: str, result: Mapping[str, object]) -> None:
    """Store the result, through an outage of Redis of up to two minutes of real time."""
    for attempt in range(_COMMIT_TRIES):
        try:
            await tools.results.commit(job_id, result)
        except Transient as error:
            if attempt == 0:
                log.warning("job_result_waits", job_id=job_id, error=str(error))
            if attempt + 1 == _COMMIT_TRIES:
                raise
            await tools.clock.sleep(_COMMIT_PAUSE_S * tools.clock.scale)
        else:
            return


def _read_arguments(
    args: tuple[object, ...], kwargs: Mapping[str, object]
) -> tuple[str, Mapping[str, object]]:
    if len(args) != 2 or kwargs:
        raise Invalid("a job takes a kind and a payload")
    kind, payload = args
    if not isinstance(kind, str) or not isinstance(payload, Mapping):
        raise Invalid("a job's kind must be a text and its payload a JSON object")
    return kind, payload


def _attempts(job: Job) -> Attempts:
    """What is remembered of earlier runs; what cannot be read counts as nothing."""
    kept = job.meta.get("attempts")
    if not isinstance(kept, dict):
        return Attempts()
    names = ("failures", "refusals", "holds")
    numbers = {name: kept.get(name) for name in names}
    return Attempts(**{name: n for name, n in numbers.items() if isinstance(n, int) and n >= 0})


def _fail(job: Job, reason: str) -> NoReturn:
    # RQ's own retries are for processes that died; this job has had its chances.
    job.retries_left = 0
    raise JobFailed(reason)
