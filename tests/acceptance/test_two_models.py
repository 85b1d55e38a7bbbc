"""Fifty callers of two models that cannot be resident together: few swaps, bounded waits.

Prints its figures (``pytest -s``). Times are seconds of a clock that runs ten times faster.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass

import aiohttp
import pytest

from contracts.config import QueueConfig
from contracts.events import PriorityClass
from tests.house import Answer, RunningHouse

pytestmark = pytest.mark.acceptance

CALLERS = 50
LOAD_S = 6.0
SERVICE_S = 2.0
TURN_S = 15.0
FOR_S = 100.0

LIMIT_S = 60.0
"""The load budget: whoever waits longer is told so instead of being served."""

QUEUES = QueueConfig(
    capacity=dict.fromkeys(PriorityClass, CALLERS), timeout_s=dict.fromkeys(PriorityClass, 60.0)
)


@dataclass(frozen=True)
class Run:
    """What became of one run."""

    answers: list[Answer]
    loads: list[str]
    swaps: int
    took_s: float

    def longest_wait_s(self) -> float:
        return max(answer.queue_s or 0.0 for answer in self.answers)

    def show(self, name: str) -> None:
        waits = sorted(answer.queue_s or 0.0 for answer in self.answers)
        ok = sum(answer.status == 200 for answer in self.answers)
        print(
            f"\n{name}: {len(self.answers)} requests in {self.took_s:.0f} s, {ok} answered, "
            f"{len(self.loads)} loads, {self.swaps} swaps, waited p50 "
            f"{waits[len(waits) // 2]:.1f} s, p95 {waits[int(len(waits) * 0.95)]:.1f} s, "
            f"at most {waits[-1]:.1f} s (limit {LIMIT_S:.0f} s)"
        )


def house() -> RunningHouse:
    models = [
        {"name": name, "footprint_mb": 8_000, "load_s": LOAD_S, "parallel": 8} for name in "ab"
    ]
    return RunningHouse(
        models,
        capacity_mb=10_000,
        scale=10.0,
        planner={"turn_s": TURN_S},
        queue=QUEUES,
        slots={"a": 8, "b": 8},
    )


async def session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))


async def closed_loop(stage: RunningHouse) -> list[Answer]:
    """Each caller asks again as soon as it is answered, half of them for each model."""
    answers: list[Answer] = []
    end_s = stage.clock.monotonic_s() + FOR_S

    async def caller(client: aiohttp.ClientSession, model: str) -> None:
        while stage.clock.monotonic_s() < end_s:
            answers.append(await stage.chat(client, model, service_s=SERVICE_S))

    async with await session() as client, asyncio.TaskGroup() as group:
        for _, model in zip(range(CALLERS), itertools.cycle("ab"), strict=False):
            group.create_task(caller(client, model))
    return answers


async def open_loop(stage: RunningHouse) -> list[Answer]:
    """A request each 0.75 s, whatever became of the others, of either model in turn."""
    async with await session() as client:
        asked = []
        for model in itertools.islice(itertools.cycle("ab"), int(FOR_S / 0.75)):
            asked.append(asyncio.create_task(stage.chat(client, model, service_s=SERVICE_S)))
            await stage.clock.sleep(0.75)
        return list(await asyncio.gather(*asked))


@pytest.mark.parametrize("load", [closed_loop, open_loop])
@pytest.mark.timeout(120)
def test_fifty_callers_of_two_models_that_exclude_each_other(load):
    with house() as stage:
        since_s = stage.clock.monotonic_s()
        answers = asyncio.run(load(stage))
        took_s = stage.clock.monotonic_s() - since_s
        run = Run(answers, stage.loads(), stage.swaps(), took_s)
    run.show(load.__name__)
    assert all(answer.status == 200 for answer in run.answers)
    assert run.longest_wait_s() <= LIMIT_S
    # One swap for each turn and load, however many ask; two more for the beginning and the end.
    assert run.swaps <= run.took_s / (TURN_S + LOAD_S) + 2
    assert {"a", "b"} == set(run.loads)
