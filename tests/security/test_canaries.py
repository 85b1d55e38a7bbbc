"""A whole stack with secrets of every kind, and none in anything that it writes or shows."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import redis

from cli.services import SERVICES
from cli.stack import Stack

pytestmark = pytest.mark.integration

# Nothing about them looks like a key, so that no filter by looks can hide them.
WORDS = ("plain", "admin", "node", "redis", "hook", "scaler", "store", "prompt", "job")
PLAIN, ADMIN, NODE, REDIS, HOOK, SCALER, STORE, PROMPT, JOB = (
    f"canary-{word}-0123456789abcdefghijklmnop" for word in WORDS
)
PAGES = (
    "/", "/docs", "/metrics", "/v1/decisions", "/v1/nodes", "/v1/models", "/v1/queues", "/v1/jobs",
    "/v1/jobs/failed", "/v1/policies", "/v1/settings", "/v1/requests", "/v1/summary", "/v1/slas",
    "/v1/forecasts", "/v1/models/tiny", "/v1/models/tiny/profile", "/v1/explain/tiny",
    "/v1/batches", "/v1/files", "/v1/autoscale", "/v1/kpis", "/openapi.json", "/readyz", "/healthz",
    "/v1/nothing?key=1",
)  # fmt: skip
COMMANDS = (
    ("doctor",), ("explain", "tiny"), ("config", "show"), ("footprint",), ("backup",),
)  # fmt: skip
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def dump(url: str, *, jobs: bool) -> str:
    """What is in Redis: of jobs, which hold their requests and answers, or of all else."""
    with redis.Redis.from_url(url, protocol=2) as client:
        return "\n".join(
            f"{key!r} {client.dump(key)!r} {client.hgetall(key) if is_hash(client, key) else ''}"
            for key in client.scan_iter()
            if key.startswith((b"rq:", b"headstart:job-")) == jobs
        )


def is_hash(client: redis.Redis, key: bytes) -> bool:
    kind: Any = client.type(key)
    return bool(kind == b"hash")


async def command(words: tuple[str, ...], environ: dict[str, str]) -> str:
    run = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "cli", *words, cwd=ROOT, env={**os.environ, **environ},
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    said, _ = await run.communicate()
    assert b"Traceback" not in said
    return f"{words} {said.decode(errors='replace')}"


@pytest.mark.case("P098")
@pytest.mark.timeout(180)
async def test_no_secret_of_a_stack_is_written_or_shown(
    folder: Path, start_redis: Callable[..., Any]
):
    server = start_redis(requirepass=REDIS)
    redis_url = f"unix://:{REDIS}@{server.url.removeprefix('unix://')}"
    models = folder / "models.json"
    models.write_text('{"models": [{"name": "tiny", "load_s": 0.1, "footprint_mb": 100}]}')
    environment = {
        "HEADSTART_GATEWAY_KEYS": PLAIN,
        "HEADSTART_ADMIN_KEY": ADMIN,
        "HEADSTART_LOCALAI_API_KEY": NODE,
        "HEADSTART_REDIS_URL": redis_url,
        "HEADSTART_WORKERS__WEBHOOK_SECRET": HOOK,
        "HEADSTART_COMPOSE_SCALER__TOKEN": SCALER,
        "AWS_SECRET_ACCESS_KEY": STORE,
        "HEADSTART_LOGGING__LEVEL": "debug",
        "HEADSTART_SCHEDULER__MODE": "active",
    }
    emulator = ("--models", str(models), "--api-key", NODE)
    data_dir = folder / "data"
    async with (
        Stack(environment, data_dir, emulator_args=emulator, start_s=90.0) as stack,
        aiohttp.ClientSession() as session,
    ):
        shown = ""

        async def ask(url: str, key: str, **body: object) -> int:
            nonlocal shown
            headers = {"Authorization": f"Bearer {key}"}
            method = "POST" if body else "GET"
            async with session.request(method, url, headers=headers, json=body or None) as answer:
                shown += f"{answer.status} {dict(answer.headers)} {await answer.text()}\n"
                return int(answer.status)

        chat = stack.gateway_url + "/v1/chat/completions"
        words = {"model": "tiny", "messages": [{"role": "user", "content": PROMPT}]}
        async with asyncio.timeout(60.0):
            while await ask(chat, PLAIN, **words) != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        assert await ask(chat, ADMIN, **words) == 401
        assert await ask(chat, PLAIN, **{**words, "model": "nobody-has-this"}) >= 400
        job = {"model": "tiny", "messages": [{"role": "user", "content": JOB}]}
        taken = f"{stack.control_url}/v1/background/v1/chat/completions"
        assert await ask(taken, PLAIN, **job) == 202
        lines = [
            line
            for child in psutil.Process().children(recursive=True)
            if "-m emulator" not in (line := " ".join(child.cmdline()))
        ]
        limits = {
            psutil.Process(pid).rlimit(psutil.RLIMIT_CORE)[0]
            for name in SERVICES
            if (pid := stack.pid(name)) is not None
        }
        await stack.hold("emulator")
        assert await ask(chat, PLAIN, **words) >= 500
        stack.kill("gateway", signal.SIGSEGV)
        for name in SERVICES:
            stack.kill(name, signal.SIGHUP)
        for page in PAGES:
            await ask(stack.control_url + page, ADMIN)
        told = {
            **environment,
            "HEADSTART_DATA_DIR": str(data_dir),
            "HEADSTART_LOCALAI_URL": stack.emulator_url,
            "HEADSTART_CONTROL_PORT": stack.control_url.rsplit(":", 1)[1],
            "HEADSTART_GATEWAY_PORT": stack.gateway_url.rsplit(":", 1)[1],
        }
        shown += "\n".join(await asyncio.gather(*(command(words, told) for words in COMMANDS)))
        held, of_jobs = dump(redis_url, jobs=False), dump(redis_url, jobs=True)
        logs = "\n".join(log.read_text(errors="replace") for log in stack.log_dir.iterdir())
    files = [path for path in data_dir.rglob("*") if path.is_file()]
    kept = "\n".join(path.read_text(errors="replace") for path in files)
    assert "headstart:events" in held
    assert "gateway_started" in logs
    for written in (held, logs, shown, kept, *lines):
        assert "canary" not in written
    # A job holds its request, packed by RQ; no key and no prompt of anybody else is in it.
    assert of_jobs != ""
    assert "canary" not in of_jobs.replace(JOB, "")
    assert {
        path.name: oct(path.stat().st_mode) for path in files if path.stat().st_mode & 0o077
    } == {}
    assert data_dir.stat().st_mode & 0o077 == 0
    assert limits <= {0, 1}, "a crash writes no memory to a disk"
    assert list(ROOT.glob("core*")) == []
