"""Everything on a Redis Cluster: requests are served, forecast and loaded ahead, jobs are done."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from adapters.clock import ANCHOR_VARIABLE, ScaledClock
from adapters.redis_blocking import connect_blocking
from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from adapters.rq_queue import RqJobQueue
from cli.seeding import seed
from contracts.ids import ModelId
from tests.acceptance.deployment import Deployment, deployed, of_kind
from tests.conftest import PrivateServer
from tests.redis_cluster import PrivateCluster
from workers.queues import QUEUES

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(120)]

SCALE = 20.0
PERIOD_S = 60.0
MODELS = [{"name": "report", "footprint_mb": 3000, "load_s": 4, "tokens_per_s": 200}]


@asynccontextmanager
async def on_a_cluster(cluster_url: str, jobs_url: str) -> AsyncIterator[Deployment]:
    """A deployment that has seen ``report`` asked for once a minute for two hours."""
    now_s = time.time()
    environ = {
        "HEADSTART_ENV": "dev",
        "HEADSTART_TIME_SCALE": f"{SCALE:g}",
        # One clock for all: whoever starts something else would begin another one.
        ANCHOR_VARIABLE: f"{now_s!r}:{now_s!r}",
        "HEADSTART_REDIS_URL": cluster_url,
        "HEADSTART_REDIS_JOBS_URL": jobs_url,
    }
    started_s = ScaledClock.from_environment(environ).now_s()
    client = connect(cluster_url)
    try:
        past = [started_s - minute * PERIOD_S for minute in range(120, 0, -1)]
        await seed(RedisEventLog(client), ((at_s, ModelId("report"), 0.5, "c") for at_s in past))
    finally:
        await client.aclose()
    async with deployed(MODELS, environ=environ) as deployment:
        yield deployment


async def test_it_serves_forecasts_and_loads_ahead(
    redis_cluster: PrivateCluster, start_redis: Callable[..., PrivateServer]
):
    jobs_url = start_redis().url
    async with on_a_cluster(redis_cluster.url, jobs_url) as deployment:

        def queue() -> bool:
            with connect_blocking(jobs_url) as client:
                body = {"messages": [{"role": "user", "content": "Hello"}]}
                payload = {"path": "/v1/chat/completions", "model": "report", "body": body}
                jobs = RqJobQueue(client, QUEUES)
                return jobs.enqueue("background", "inference", payload, "job-1")

        assert await asyncio.to_thread(queue)
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        for number in itertools.count():
            assert number < 12, "it was never loaded ahead"
            await asyncio.sleep(due_s + number * PERIOD_S / SCALE - loop.time())
            answer = await deployment.chat("report", request_id=f"report-{number}")
            assert answer.status == 200, answer.text
            if number and not answer.is_cold:
                break
            await deployment.unload_in_localai("report")
        log = await deployment.events()
        assert len(of_kind(log, "unloaded", "report")) >= 1
        shown = await deployment.control("GET", "/v1/forecasts/report")
        assert shown.json["next_use"] is not None
        decided = await deployment.control("GET", "/v1/decisions?limit=400&model=report")
        assert "forecast" in {one["reason"] for one in decided.json["data"]}, decided.text

        async def done() -> bool:
            job = await deployment.control("GET", "/v1/jobs/job-1")
            return bool(job.json["status"]["state"] == "finished")

        await deployment.until(done, "the job is done")
    kept = {key for server in redis_cluster.primaries for key in server.ask("KEYS", "*")}
    assert kept
    assert all(key.startswith(b"headstart:{") for key in kept), kept
    assert sum(bool(server.ask("DBSIZE")) for server in redis_cluster.primaries) >= 2
