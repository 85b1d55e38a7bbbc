"""One side of a replay: real processes, the trace sent through them, and what came of it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from adapters.clock import ScaledClock
from adapters.embedded_server import EmbeddedServer
from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.redis_stores import RedisSnapshotStore
from cli.seeding import seed
from cli.stack import Stack
from cli.traffic import Planned, send_all
from contracts.ids import ModelId
from contracts.world import PrefetchTally
from simulator.replay import Judgement, LogLine, Sent, judge
from simulator.rules import safe_model_limit
from simulator.workloads import Workload

LOCALAI_LRU = "localai-lru"
"""The side without Headstart: the emulator alone, with LocalAI's own limit."""

EPOCH_S = 1_704_067_200.0
"""Second 0 of a trace: Monday, 1 January 2024, 00:00 UTC."""

LEAD_S = 30.0
"""Real seconds before the measured part in which processes start and traffic flows already."""

SETTLE_S = 600.0
"""Seconds of the stack's clock that the last requests may take to end."""

SERVICES = ("gateway", "predictor", "controller")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What to replay, the same for each side. Times are seconds of the trace."""

    workload: Workload
    capacity_mb: int
    from_s: float
    until_s: float
    time_scale: float
    reserve_ratio: float
    cold: bool

    @property
    def lead_s(self) -> float:
        """Seconds of the trace that are sent before the measured part."""
        return LEAD_S * self.time_scale

    @property
    def slo_s(self) -> float:
        """The wait that still counts as good; every standard workload has one for all."""
        return next(iter(self.workload.models.values())).slo_s


async def replay_arm(
    policy: str, plan: ReplayPlan, data_dir: Path, progress: Callable[[float], None]
) -> Judgement:
    """Run one side to its end in ``data_dir``; ``progress`` is told the share that is done."""
    env = _environment(policy, plan)
    clock = ScaledClock.from_environment(env)
    log_file = data_dir / "emulator-events.jsonl"
    alone = policy == LOCALAI_LRU
    arguments = _emulator_arguments(plan, data_dir, log_file, alone=alone)
    if alone:
        async with Stack(env, data_dir, services=(), emulator_args=arguments) as stack:
            sent = await _send(plan, stack.emulator_url, clock, progress)
        tally = PrefetchTally()
    else:
        async with EmbeddedServer(data_dir) as redis:
            env["HEADSTART_REDIS_URL"] = redis.url
            sent, tally = await _through_headstart(plan, env, arguments, data_dir, clock, progress)
    return judge(
        policy,
        sent,
        _log_lines(log_file),
        from_s=EPOCH_S + plan.from_s,
        until_s=EPOCH_S + plan.until_s,
        slo_s=plan.slo_s,
        prefetches=tally.started,
        wasted_prefetches=tally.wasted,
    )


async def _through_headstart(
    plan: ReplayPlan,
    env: Mapping[str, str],
    emulator_args: list[str],
    data_dir: Path,
    clock: ScaledClock,
    progress: Callable[[float], None],
) -> tuple[list[Sent], PrefetchTally]:
    redis = connect(env["HEADSTART_REDIS_URL"])
    snapshots = RedisSnapshotStore(redis)
    try:
        if not plan.cold:
            await seed(RedisEventLog(redis), _history(plan, until_s=clock.now_s() - EPOCH_S))
        async with Stack(env, data_dir, services=SERVICES, emulator_args=emulator_args) as stack:
            before = asyncio.create_task(_tally_at(snapshots, clock, EPOCH_S + plan.from_s))
            sent = await _send(plan, stack.gateway_url, clock, progress)
            after = await _tally_at(snapshots, clock, EPOCH_S + plan.until_s)
            start = await before
    finally:
        await redis.aclose()
    return sent, PrefetchTally(
        started=after.started - start.started,
        used=after.used - start.used,
        wasted=after.wasted - start.wasted,
    )


async def _tally_at(
    snapshots: RedisSnapshotStore, clock: ScaledClock, at_s: float
) -> PrefetchTally:
    """Prefetches counted so far by the first snapshot taken at or after ``at_s``."""
    await clock.sleep(max(0.0, at_s - clock.now_s()))
    world = await snapshots.world()
    while world is None or world.taken_at_s < at_s:
        await clock.sleep(1.0)
        world = await snapshots.world()
    return world.prefetches


async def _send(
    plan: ReplayPlan, url: str, clock: ScaledClock, progress: Callable[[float], None]
) -> list[Sent]:
    """What is due from now until the end of the measured part, each at its time."""
    begin_s = clock.now_s() - EPOCH_S
    arrivals = plan.workload.between(begin_s, plan.until_s)
    planned = [
        Planned(
            request_id=f"r{number}",
            model=arrival.model,
            due_s=EPOCH_S + arrival.at_s,
            service_s=arrival.service_s,
        )
        for number, arrival in enumerate(arrivals)
    ]
    ended = 0

    def count(_: Sent) -> None:
        nonlocal ended
        ended += 1
        progress(ended / len(planned))

    remaining_s = plan.until_s - begin_s + SETTLE_S
    async with clock.timeout(remaining_s):
        return await send_all(planned, url, clock, on_ended=count)


def _history(plan: ReplayPlan, *, until_s: float) -> Iterator[tuple[float, ModelId, float, str]]:
    """What the trace holds before the processes start."""
    return (
        (EPOCH_S + a.at_s, a.model, a.service_s, "trace")
        for a in plan.workload.between(0.0, until_s)
    )


def _environment(policy: str, plan: ReplayPlan) -> dict[str, str]:
    """One clock for all: it shows the trace's time, ``lead_s`` before the measured part, now."""
    clock_s = EPOCH_S + plan.from_s - plan.lead_s
    return {
        **os.environ,
        "HEADSTART_ENV": "dev",
        "HEADSTART_TIME_SCALE": repr(plan.time_scale),
        "HEADSTART_TIME_ANCHOR": f"{time.time()!r}:{clock_s!r}",
        "HEADSTART_GATEWAY_PORT": "0",
        "HEADSTART_CONTROL_PORT": "0",
        "HEADSTART_SCHEDULER__MODE": "active",
        "HEADSTART_SCHEDULER__POLICY": "headstart" if policy == LOCALAI_LRU else policy,
        "HEADSTART_MEMORY__RESERVE_RATIO": repr(plan.reserve_ratio),
        # LocalAI alone refuses nobody; neither side may look better by refusing.
        "HEADSTART_QUEUE_CONFIG__REALTIME_CAPACITY": "10000",
        "HEADSTART_QUEUE_CONFIG__TIMEOUT_SECONDS": "600",
        "HEADSTART_GATEWAY__TIMEOUTS__MIN_LOAD_BUDGET_SECONDS": "600",
    }


def _emulator_arguments(
    plan: ReplayPlan, data_dir: Path, log_file: Path, *, alone: bool
) -> list[str]:
    models = data_dir / "models.json"
    models.write_text(
        json.dumps(
            {
                "models": [
                    {
                        "name": name,
                        "kind": "chat",
                        "footprint_mb": model.size_mb,
                        "load_s": model.load_s,
                        "parallel": model.parallel,
                    }
                    for name, model in plan.workload.models.items()
                ]
            }
        )
    )
    # LocalAI counts models and does not look at memory; its limit is the safe one.
    limit = safe_model_limit(plan.workload, plan.capacity_mb)
    bound = (
        ["--max-active-backends", str(limit)] if alone else ["--capacity-mb", str(plan.capacity_mb)]
    )
    return ["--models", str(models), "--event-log", str(log_file), "--exact-load-times", *bound]


def _log_lines(path: Path) -> list[LogLine]:
    return [LogLine.parse(json.loads(line)) for line in path.read_text().splitlines() if line]
