"""How good forecasts were over the last week, and a challenger that may take over.

Imported by the job that needs it alone: what it rests on takes a second and a hundred megabytes.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog

from contracts.errors import HeadstartError, Invalid
from contracts.events import PriorityClass, RequestReceived
from contracts.insights import BOOSTED, MIXTURE, BacktestReport
from contracts.jobs import JobState
from predictor.snapshot import Sealing, seal, unseal
from workers.admission import admit_chore
from workers.history import read_requests
from workers.judging import Breaker, judge, report_of, train_and_judge
from workers.queues import MAINTENANCE
from workers.retry import Held
from workers.tools import JobContext, Tools

LOOK_BACK_S = 14 * 86_400.0
"""Two weeks: one to learn from, one to be judged by."""

LEAST_HISTORY_S = 6 * 3600.0
"""A shorter history says nothing about a week."""
TOO_SHORT = "the log holds less than six hours of requests"

T = TypeVar("T")

log = structlog.get_logger(__name__)


async def backtest(
    payload: Mapping[str, object], context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """Judge the predictor over the last week of the log and store the table.

    A second run does the same again and stores it in the same place.

    Raises
    ------
    Invalid
        The payload is not empty, or this worker has no log.
    Held
        It may not start yet.
    Transient
        A store did not answer.
    """
    requests = await begin("backtest", payload, context, tools)
    if not requests:
        return {"skipped": TOO_SHORT}
    began_s = tools.clock.monotonic_s()
    breaker = Breaker()
    result = await broken_off_with(
        breaker, tools, lambda: judge(requests, tools.predictor, breaker)
    )
    champion = BOOSTED if await was_promoted(tools, rebuild=True) else MIXTURE
    report = report_of(
        result,
        made_at_s=tools.clock.now_s(),
        took_s=real_s(tools, began_s),
        champion=champion,
        reason="judged; who is published is decided at each retraining",
    )
    await store(report, tools)
    return summary_of(report)


async def retrain(
    payload: Mapping[str, object], context: JobContext, tools: Tools
) -> Mapping[str, object]:
    """Train, judge over the last week, and put the snapshot in place in one step.

    Until that step nothing has changed, whatever dies; after it a second run does no harm.

    Raises
    ------
    Invalid
        The payload is not empty, or this worker has no log.
    Held
        It may not start yet.
    Transient, Permanent
        A store did not answer, or does not take the snapshot.
    """
    requests = await begin("retrain", payload, context, tools)
    if not requests:
        return {"skipped": TOO_SHORT}
    began_s = tools.clock.monotonic_s()
    is_promoted, breaker = await was_promoted(tools), Breaker()
    found = await broken_off_with(
        breaker,
        tools,
        lambda: train_and_judge(requests, tools.predictor, breaker, is_promoted=is_promoted),
    )
    if found.challenger is not None:
        assert tools.champions is not None
        sealing = Sealing(key=await tools.champions.key(), versions=tools.versions)
        await tools.champions.put(await tools.aside(seal, found.challenger, sealing))
        log.info("champion_put", promoted=found.challenger.promoted, reason=found.verdict.reason)
    stays = BOOSTED if is_promoted else MIXTURE
    report = report_of(
        found.result,
        made_at_s=tools.clock.now_s(),
        took_s=real_s(tools, began_s),
        champion=stays if found.challenger is None else found.verdict.champion,
        reason=found.verdict.reason,
    )
    await store(report, tools)
    return {**summary_of(report), "trained": found.challenger is not None}


async def begin(
    kind: str, payload: Mapping[str, object], context: JobContext, tools: Tools
) -> tuple[RequestReceived, ...]:
    """Check, wait for leave, and read the log; nothing where it is too short."""
    if payload:
        raise Invalid(f'payload: unknown "{min(payload)}"; {kind} takes none')
    if tools.events is None or tools.insights is None or tools.champions is None:
        raise Invalid("this worker has no event log")
    await wait_for_leave(context, tools)
    since_s = tools.clock.now_s() - LOOK_BACK_S
    requests = await read_requests(tools.events, since_s=since_s)
    if not requests or requests[-1].at_s - requests[0].at_s < LEAST_HISTORY_S:
        return ()
    log.info("learning_started", kind=kind, requests=len(requests))
    return requests


async def wait_for_leave(context: JobContext, tools: Tools) -> None:
    """Return when heavy maintenance may start. Raises Held when it must come back later."""
    admission = admit_chore(
        world=await tools.snapshots.world(),
        limits=await tools.snapshots.limits(PriorityClass.BACKGROUND),
        waited_s=context.waited_s,
        others_running=await _others_running(tools),
        now_s=tools.clock.now_s(),
        config=tools.chores,
    )
    if not admission.admitted:
        raise Held(admission.reason.value, after_s=admission.retry_after_s)


async def broken_off_with(breaker: Breaker, tools: Tools, work: Callable[[], T]) -> T:
    """Run ``work`` aside; it ends at its next look when the job is cancelled."""
    try:
        return await tools.aside(work)
    except asyncio.CancelledError:
        breaker.is_off = True
        raise


async def was_promoted(tools: Tools, *, rebuild: bool = False) -> bool:
    """Whether the challenger is published now. A snapshot that is not believed is not.

    ``rebuild``: it is then built anew from history, by a retraining that is queued once for it.
    """
    assert tools.champions is not None
    snapshot = await tools.champions.get()
    if snapshot is None:
        return False
    try:
        sealing = Sealing(key=await tools.champions.key(), versions=tools.versions)
        return unseal(snapshot, sealing).promoted
    except HeadstartError as error:
        log.warning("champion_refused", reason=str(error))
    if rebuild:
        job_id = f"retrain-rebuild-{hashlib.sha256(snapshot).hexdigest()[:16]}"
        await tools.aside(tools.jobs.enqueue, MAINTENANCE, "retrain", {}, job_id)
    return False


async def store(report: BacktestReport, tools: Tools) -> None:
    """Keep the report in place of the one before."""
    assert tools.insights is not None
    await tools.insights.put_backtest(report)
    log.info("backtest_stored", champion=report.champion, reason=report.reason)


def summary_of(report: BacktestReport) -> Mapping[str, object]:
    """The job's result: the whole table is in the store."""
    return {
        "champion": report.champion,
        "reason": report.reason,
        "models": report.models,
        "requests": report.requests,
        "took_s": round(report.took_s, 1),
        "scaled_pinball": {
            f"{score.horizon_s:.0f}": score.scaled_pinball
            for score in report.scores
            if score.method == MIXTURE
        },
    }


def real_s(tools: Tools, began_s: float) -> float:
    """Real seconds since ``began_s`` of the monotonic clock."""
    return (tools.clock.monotonic_s() - began_s) / tools.clock.scale


async def _others_running(tools: Tools) -> int:
    """Jobs of maintenance that run beside this one; none where nobody tells."""
    try:
        counts = (await asyncio.to_thread(tools.jobs.counts)).get(MAINTENANCE, {})
    except HeadstartError:
        return 0
    return max(0, counts.get(JobState.STARTED, 0) - 1)
