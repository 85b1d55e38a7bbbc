"""Forecasts are judged by a real worker, and a worker that is killed leaves the champion."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.champion_files import CHAMPION_FOLDER, DiskChampionStore
from adapters.redis_blocking import connect_blocking
from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.redis_insights import RedisInsightStore
from adapters.rq_queue import RqJobQueue
from contracts.events import AnyEvent, RequestCompleted
from contracts.ids import ModelId, RequestId
from tests.arrivals import received
from workers.queues import MAINTENANCE, QUEUES

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
LIMIT_S = 50.0


def traffic(now_s: float, hours: float) -> tuple[AnyEvent, ...]:
    """Two models that answer, each few minutes."""
    events: list[AnyEvent] = []
    for model, period_s in (("a", 240), ("b", 700)):
        for step in range(int(hours * 3600.0 / period_s)):
            name, at_s = f"{model}{step}", now_s - hours * 3600.0 + step * period_s
            events.append(received(at_s, model, name))
            events.append(
                RequestCompleted(
                    event_id=f"c{name}",
                    at_s=at_s + 1.0,
                    source="test",
                    request_id=RequestId(name),
                    model=ModelId(model),
                    status=200,
                    duration_s=1.0,
                    service_s=1.0,
                    input_tokens=None,
                    output_tokens=None,
                )
            )
    return tuple(events)


@pytest.fixture
def worker(redis_url: str, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    environ = {
        **os.environ,
        "HEADSTART_REDIS_URL": redis_url,
        "HEADSTART_DATA_DIR": str(tmp_path / "data"),
        "HEADSTART_PREDICTOR__PUBLISH_SECONDS": "300",
        "HEADSTART_PREDICTOR__EXPIRES_SECONDS": "900",
    }
    with (tmp_path / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "workers", "--queue", MAINTENANCE],
            cwd=ROOT,
            env=environ,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


async def until_said(log: Path, event: str) -> None:
    until_s, said = time.monotonic() + LIMIT_S, ""
    while f'"{event}"' not in said:
        assert time.monotonic() < until_s, said
        await asyncio.sleep(0.05)
        said = await asyncio.to_thread(log.read_text)


async def test_a_backtest_ends_in_a_table(worker, redis_url: str, tmp_path: Path):
    client = connect(redis_url)
    await RedisEventLog(client).append(traffic(time.time(), hours=7.0))
    with connect_blocking(redis_url) as blocking:
        RqJobQueue(blocking, QUEUES).enqueue(MAINTENANCE, "backtest", {}, "backtest-now")
    await until_said(tmp_path / "worker.log", "backtest_stored")
    (report,) = await RedisInsightStore(client).backtests()
    assert (report.workload, report.models, report.champion) == ("events", 2, "mixture")
    assert report.requests > 100
    await client.aclose()


async def test_a_retraining_that_is_killed_leaves_the_champion(
    worker, redis_url: str, tmp_path: Path
):
    champions = DiskChampionStore(tmp_path / "data")
    await champions.put(b"the one before")
    client = connect(redis_url)
    await RedisEventLog(client).append(traffic(time.time(), hours=30.0))
    await client.aclose()
    with connect_blocking(redis_url) as blocking:
        RqJobQueue(blocking, QUEUES).enqueue(MAINTENANCE, "retrain", {}, "retrain-now")
    await until_said(tmp_path / "worker.log", "learning_started")
    await asyncio.sleep(0.3)
    os.killpg(worker.pid, signal.SIGKILL)
    worker.wait()
    assert await champions.get() == b"the one before"
    assert [path.name for path in (tmp_path / "data" / CHAMPION_FOLDER).iterdir()] == [
        "champion.snapshot"
    ]
