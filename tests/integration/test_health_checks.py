"""``headstart health`` against the real store: what each service has to have written."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from adapters.redis_client import connect
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_stores import RedisSnapshotStore
from contracts.forecasts import ForecastStatus, ModelForecast, NextUse
from contracts.ids import ModelId
from contracts.world import WorldSnapshot

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


def _health(*arguments: str, **environ: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-m", "cli", "health", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode, done.stdout + done.stderr


def _forecast(made_at_s: float) -> ModelForecast:
    model = ModelId("llama")
    use = NextUse(
        model=model,
        made_at_s=made_at_s,
        expires_at_s=made_at_s + 60.0,
        last_arrival_at_s=None,
        cumulative_hazard=(0.0,) * 28,
        method="gaps",
        status=ForecastStatus.WARMING_UP,
        brier=None,
        floor_brier=None,
    )
    return ModelForecast(model=model, next_use=use, signals=())


async def test_the_predictor_is_judged_by_its_newest_forecast(redis_url: str):
    url = {"HEADSTART_REDIS_URL": redis_url}
    assert _health("predictor", **url) == (0, "predictor: no model was asked for yet\n")
    client = connect(redis_url)
    await RedisForecastStore(client).put((_forecast(time.time() - 5.0),))
    assert _health("predictor", **url)[0] == 0
    await RedisForecastStore(client).put((_forecast(time.time() - 500.0),))
    code, said = _health("predictor", **url)
    assert code == 1
    assert "more than 120 s" in said
    await client.aclose()


async def test_the_controller_is_judged_by_its_newest_snapshot(redis_url: str):
    url = {"HEADSTART_REDIS_URL": redis_url}
    assert _health("controller", **url)[0] == 1
    client = connect(redis_url)
    await RedisSnapshotStore(client).put_world(WorldSnapshot(taken_at_s=time.time()))
    assert _health("controller", **url)[0] == 0
    await RedisSnapshotStore(client).put_world(WorldSnapshot(taken_at_s=time.time() - 90.0))
    assert _health("controller", **url)[0] == 1
    await client.aclose()


def test_workers_are_judged_by_the_heartbeat_of_each_queue(redis_url: str):
    environ = {**os.environ, "HEADSTART_REDIS_URL": redis_url}
    url = {"HEADSTART_REDIS_URL": redis_url}
    command = [sys.executable, "-m", "workers", "--queue", "batch"]
    with subprocess.Popen(command, cwd=ROOT, env=environ, stderr=subprocess.DEVNULL) as worker:
        try:
            found = (1, "")
            for _ in range(100):
                found = _health("workers", "--queue", "batch", **url)
                if found == (0, "workers: serves batch\n"):
                    break
                time.sleep(0.1)
            else:
                raise AssertionError(found)
            code, said = _health("workers", **url)
            assert (code, said) == (1, "workers: no worker of this host serves realtime-fallback\n")
        finally:
            worker.terminate()
    assert worker.returncode == 0
    assert _health("workers", "--queue", "batch", **url)[0] == 1


@pytest.mark.parametrize(
    ("service", "path"), [("gateway", "/headstart/healthz"), ("control", "/healthz")]
)
def test_what_listens_is_judged_by_its_answer(service: str, path: str):
    answers = {path: 200}

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(answers.get(self.path, 404))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return None

    with HTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        port = {f"HEADSTART_{service.upper()}_PORT": str(server.server_port)}
        assert _health(service, **port) == (
            0,
            f"{service}: answers on port {server.server_port}\n",
        )
        answers[path] = 503
        assert _health(service, **port)[0] == 1
        server.shutdown()
        thread.join()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = str(closed.getsockname()[1])
    code, said = _health(service, **{f"HEADSTART_{service.upper()}_PORT": nobody})
    assert (code, "does not answer" in said) == (1, True)
