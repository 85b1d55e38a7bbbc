"""``python -m predictor`` as a process: what it learns, and how it ends and comes back."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.redis_forecasts import RedisForecastStore
from contracts.forecasts import ModelForecast
from contracts.ids import ModelId
from tests.arrivals import received

pytestmark = pytest.mark.integration

CHAT = ModelId("chat")
PATIENCE_S = 30.0


@contextlib.contextmanager
def predictor(redis_url: str | None, **environment: str) -> Iterator[subprocess.Popen[str]]:
    # One that comes back waits for its own last lease to run out.
    environ = {**os.environ, "HEADSTART_PREDICTOR__LEASE_SECONDS": "1.5", **environment}
    process = subprocess.Popen(
        [sys.executable, "-m", "predictor"],
        env=environ if redis_url is None else {**environ, "REDIS_URL": redis_url},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def append(redis_url: str, *times: float) -> None:
    client = connect(redis_url)
    await RedisEventLog(client).append(tuple(received(at_s) for at_s in times))
    await client.aclose()


async def forecast_after(redis_url: str, last_arrival_at_s: float) -> ModelForecast:
    """The first forecast that knows of this arrival."""
    client = connect(redis_url)
    store = RedisForecastStore(client)
    end_s = time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < end_s:
            forecast = await store.get(CHAT)
            if (
                forecast is not None
                and forecast.next_use is not None
                and forecast.next_use.last_arrival_at_s == last_arrival_at_s
            ):
                return forecast
            await asyncio.sleep(0.05)
    finally:
        await client.aclose()
    raise AssertionError("no forecast came")


async def test_it_learns_from_the_log_and_follows_it_and_ends_well(redis_url: str) -> None:
    now_s = time.time()
    await append(redis_url, *(now_s - 30.0 - 60.0 * call for call in range(59, -1, -1)))
    with predictor(redis_url) as process:
        forecast = await forecast_after(redis_url, now_s - 30.0)
        assert forecast.next_use is not None
        assert forecast.next_use.probability_between(now_s, 0.0, 60.0) > 0.9
        assert forecast.signals
        await append(redis_url, now_s + 1.0)
        await forecast_after(redis_url, now_s + 1.0)

        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=5.0) == 0


async def test_a_killed_one_knows_all_again_when_it_comes_back(redis_url: str) -> None:
    now_s = time.time()
    await append(redis_url, *(now_s - 30.0 - 60.0 * call for call in range(59, -1, -1)))
    with predictor(redis_url) as process:
        before = await forecast_after(redis_url, now_s - 30.0)
        process.kill()
    await append(redis_url, now_s)
    with predictor(redis_url):
        after = await forecast_after(redis_url, now_s)

    assert before.next_use is not None
    assert after.next_use is not None
    assert after.next_use.status is before.next_use.status
    # As of when the curve was made, which on a slow machine is a good while after the request.
    made_s = after.next_use.made_at_s
    late_s = made_s - now_s
    assert late_s < 55.0
    soon_s = max(0.0, 45.0 - late_s)
    assert after.next_use.probability_between(made_s, soon_s, 65.0 - late_s) > 0.9


@pytest.mark.parametrize(
    ("redis_url_given", "said"), [(None, "no Redis"), ("http://nowhere", "redis")]
)
def test_what_cannot_work_is_said_in_one_line(redis_url_given: str | None, said: str) -> None:
    with predictor(redis_url_given) as process:
        _, errors = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 2
    assert said in errors
    assert len(errors.strip().splitlines()) == 1
