"""A whole stack with keys of every kind, and none of them in anything that it writes or shows."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
import redis

from cli.services import SERVICES
from cli.stack import Stack

pytestmark = pytest.mark.integration

# Nothing about them looks like a key, so that no filter by looks can hide them.
PLAIN, ADMIN, NODE = (f"canary-{word}-0123456789abcdefghijklmnop" for word in "pan")
PAGES = (
    "/",
    "/metrics",
    "/v1/decisions",
    "/v1/nodes",
    "/v1/models",
    "/v1/queues",
    "/v1/jobs",
    "/v1/policies",
    "/openapi.json",
    "/readyz",
    "/healthz",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def dump(url: str) -> str:
    with redis.Redis.from_url(url, protocol=2) as client:
        return "\n".join(f"{key!r} {client.dump(key)!r}" for key in client.scan_iter())


@pytest.mark.case("P098")
@pytest.mark.timeout(180)
async def test_no_key_of_a_stack_is_written_or_shown(folder: Path):
    models = folder / "models.json"
    models.write_text('{"models": [{"name": "tiny", "load_s": 0.1, "footprint_mb": 100}]}')
    environment = {
        "HEADSTART_GATEWAY_KEYS": PLAIN,
        "HEADSTART_ADMIN_KEY": ADMIN,
        "HEADSTART_LOCALAI_API_KEY": NODE,
        "HEADSTART_LOGGING__LEVEL": "debug",
        "HEADSTART_SCHEDULER__MODE": "active",
    }
    emulator = ("--models", str(models), "--api-key", NODE)
    async with (
        Stack(environment, folder, emulator_args=emulator, start_s=90.0) as stack,
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
        async with asyncio.timeout(60.0):
            while await ask(chat, PLAIN, model="tiny", messages=[]) != 200:  # noqa: ASYNC110
                await asyncio.sleep(0.5)
        assert await ask(chat, ADMIN, model="tiny", messages=[]) == 401
        await stack.hold("emulator")
        assert await ask(chat, PLAIN, model="tiny", messages=[]) >= 500
        for name in SERVICES:
            stack.kill(name, signal.SIGHUP)
        for page in PAGES:
            await ask(stack.control_url + page, ADMIN)
        for page in ("metrics", "readyz"):
            await ask(f"{stack.gateway_url}/headstart/{page}", PLAIN)
        await asyncio.sleep(1.0)
        held = dump(stack.redis_url)
        logs = "\n".join(log.read_text(errors="replace") for log in stack.log_dir.iterdir())
    assert "headstart:events" in held
    assert "gateway_started" in logs
    for written in (held, logs, shown):
        assert "canary" not in written
