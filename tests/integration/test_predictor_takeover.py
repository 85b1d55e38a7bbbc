"""Two ``python -m predictor``: one publishes, the other takes over; nothing is written by two."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
import redis.asyncio

from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_predictors import RedisPredictorRoster
from contracts.ids import ModelId
from contracts.predictors import PredictorBeat, Standing, owner_of, present
from tests.arrivals import received

pytestmark = pytest.mark.integration

CHAT = ModelId("chat")
PATIENCE_S = 40.0
LEASE_S = "1.5"
"""Short, so that tests are; the default is 5 s."""


@dataclass
class Stage:
    url: str
    client: redis.asyncio.Redis
    processes: list[subprocess.Popen[str]]

    def start(self) -> subprocess.Popen[str]:
        environment = {"REDIS_URL": self.url, "HEADSTART_PREDICTOR__LEASE_SECONDS": LEASE_S}
        process = subprocess.Popen(
            [sys.executable, "-m", "predictor"],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    async def append(self, *times: float) -> None:
        await RedisEventLog(self.client).append(tuple(received(at_s) for at_s in times))

    async def beats(self) -> tuple[PredictorBeat, ...]:
        return present(await RedisPredictorRoster(self.client).all(), time.time())

    async def owner(self) -> PredictorBeat | None:
        return owner_of(await RedisPredictorRoster(self.client).all(), time.time())

    async def made_at_s(self) -> float:
        forecast = await RedisForecastStore(self.client).get(CHAT)
        if forecast is None or forecast.next_use is None:
            return 0.0
        return forecast.next_use.made_at_s

    async def owned_by(self, process: subprocess.Popen[str]) -> None:
        async def is_owner() -> bool:
            owner = await self.owner()
            return owner is not None and f"-{process.pid}-" in owner.name

        await until(is_owner)

    async def fresh_after(self, at_s: float) -> float:
        """Seconds until a forecast is there that was made after ``at_s``."""

        async def is_fresh() -> bool:
            return await self.made_at_s() > at_s

        await until(is_fresh)
        return time.time() - at_s

    async def pair(self) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
        """An owner, and one that stands by; they start at the same time."""
        processes = (self.start(), self.start())
        await until(self.are_two)
        owner = await self.owner()
        assert owner is not None
        first, second = sorted(processes, key=lambda one: f"-{one.pid}-" not in owner.name)
        return first, second

    async def are_two(self) -> bool:
        standings = [beat.standing for beat in await self.beats()]
        return standings == [Standing.OWNER, Standing.STANDBY]


async def until(done: Callable[[], Awaitable[bool]]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        if await done():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not come to that")


@contextlib.contextmanager
def ended(processes: list[subprocess.Popen[str]]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@asynccontextmanager
async def stage_at(url: str) -> AsyncIterator[Stage]:
    client = connect(url)
    stage = Stage(url, client, [])
    now_s = time.time()
    await stage.append(*(now_s - 30.0 - 60.0 * call for call in range(9, -1, -1)))
    try:
        with ended(stage.processes):
            yield stage
    finally:
        await client.aclose()


@pytest.mark.timeout(150)
async def test_a_killed_owner_is_followed_and_a_stopped_one_says_nothing_more(
    redis_url: str,
) -> None:
    async with stage_at(redis_url) as stage:
        first, second = await stage.pair()
        first.kill()
        await stage.append(time.time())
        await stage.fresh_after(time.time())
        await stage.owned_by(second)

        third = stage.start()
        await until(lambda: _stand_by(stage, third))
        second.send_signal(signal.SIGSTOP)
        stopped_s = time.time()
        await stage.append(time.time())
        await stage.fresh_after(stopped_s)
        await stage.owned_by(third)
        token = await stage.owner()
        second.send_signal(signal.SIGCONT)
        newest_s, woken_s = await stage.made_at_s(), time.time()
        await until(lambda: _stand_by(stage, second))
        while time.time() < woken_s + 1.5:
            await stage.append(time.time())
            made_s = await stage.made_at_s()
            assert made_s >= newest_s
            newest_s = made_s
            await asyncio.sleep(0.05)
        owner = await stage.owner()
        assert owner is not None
        assert token is not None
        assert (owner.name, owner.token) == (token.name, token.token)

        ended_s = time.time()
        third.send_signal(signal.SIGTERM)
        await stage.fresh_after(ended_s)
        assert third.wait(timeout=PATIENCE_S) == 0
        await stage.owned_by(second)
        # Who ends well is forgotten at once; the killed one is for as long as it may be heard of.
        assert not [beat for beat in await stage.beats() if f"-{third.pid}-" in beat.name]


@pytest.mark.timeout(150)
async def test_without_redis_nobody_owns_and_afterwards_one_does(start_redis) -> None:
    server = start_redis()
    async with stage_at(server.url) as stage:
        await stage.pair()
        server.kill()
        await asyncio.sleep(2.0)
        server.start()
        await stage.client.connection_pool.disconnect()
        began_s = time.time()
        await stage.append(time.time())
        await stage.fresh_after(began_s)
        await until(stage.are_two)


async def _stand_by(stage: Stage, process: subprocess.Popen[str]) -> bool:
    return any(
        f"-{process.pid}-" in beat.name and beat.standing is Standing.STANDBY
        for beat in await stage.beats()
    )
