"""SIGTERM to all of it: everything ends in time, by itself, with nothing left."""

from __future__ import annotations

import asyncio
import os
import signal
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cli.ports import free_port
from cli.services import SERVICES
from tests.acceptance.deployment import (
    Answer,
    Deployment,
    command,
    command_environment,
    deployed,
    family,
    is_gone,
    settings,
    until,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

END_S = 10.0
"""Real seconds in which all of it has to end."""

MODELS = [
    {"name": "warm", "footprint_mb": 100, "load_s": 1, "parallel": 8},
    {"name": "cold", "footprint_mb": 100, "load_s": 600},
    {"name": "next", "footprint_mb": 100, "load_s": 1},
]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


@asynccontextmanager
async def callers(deployment: Deployment) -> AsyncIterator[asyncio.Task[Answer]]:
    """Requests of every kind are under way: short, long, streamed, and waiting for a load.

    Gives the one that waits.
    """
    assert (await deployment.chat("warm")).status == 200

    async def again_and_again() -> None:
        while (await deployment.chat("warm")).status == 200:
            pass

    waiting = asyncio.create_task(deployment.chat("cold"))
    tasks = [
        waiting,
        asyncio.create_task(again_and_again()),
        asyncio.create_task(deployment.chat("warm", service_s=15.0)),
        asyncio.create_task(deployment.chat("warm", service_s=600.0, stream=True)),
        asyncio.create_task(deployment.chat("cold", stream=True)),
    ]

    async def busy() -> bool:
        models = (await deployment.state())["models"]
        loading = models["cold"]["residency"] == "loading"
        return bool(loading and models["warm"]["in_flight"] >= 2)

    await deployment.until(busy, "requests run and a model loads")
    yield waiting
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def stops_in_time(deployment: Deployment, before: dict[int, str]) -> None:
    ours = {pid: what for pid, what in family().items() if pid not in before}
    assert len(ours) >= len(SERVICES) + 2
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    await deployment.stack.stop()
    took_s = loop.time() - start_s
    codes = {name: deployment.stack.exit_code(name) for name in (*SERVICES, "emulator")}
    assert codes == dict.fromkeys(codes, 0)
    assert took_s < END_S
    left = {pid: what for pid, what in ours.items() if not is_gone(pid)}
    assert not left


async def test_under_load_and_in_the_middle_of_a_load_all_ends_by_itself():
    before = family()
    async with deployed(MODELS) as deployment, callers(deployment) as waiting:
        await stops_in_time(deployment, before)
        answer = await waiting
        assert answer.status == 503, answer.text
        assert answer.error_type == "shutting_down"
        assert int(answer.headers["Retry-After"]) >= 1


async def test_idle_all_ends_by_itself():
    before = family()
    async with deployed(MODELS) as deployment:
        await stops_in_time(deployment, before)


async def test_while_redis_is_away_all_ends_by_itself():
    before = family()
    async with deployed(MODELS) as deployment:
        assert (await deployment.chat("warm")).status == 200
        await deployment.stack.hold("redis")
        await stops_in_time(deployment, before)


async def test_a_request_that_runs_when_the_gateway_is_told_to_stop_gets_its_answer():
    async with deployed(MODELS, services=("gateway",)) as deployment:
        assert (await deployment.chat("warm")).status == 200
        running = asyncio.create_task(deployment.chat("warm", service_s=10.0))

        async def in_flight() -> bool:
            return bool((await deployment.state())["models"]["warm"]["in_flight"])

        await deployment.until(in_flight, "the request runs")
        deployment.stack.kill("gateway", signal.SIGTERM)
        answer = await running
        assert answer.status == 200, answer.text


async def test_headstart_up_under_load_ends_with_code_0_and_leaves_nothing(folder: Path):
    async with deployed(MODELS, services=()) as localai:
        environ = settings(
            HEADSTART_DATA_DIR=str(folder / "data"),
            HEADSTART_GATEWAY_PORT=str(free_port()),
            HEADSTART_CONTROL_PORT=str(free_port()),
            HEADSTART_LOCALAI_URL=localai.stack.emulator_url,
        )
        before = family()
        process = await asyncio.create_subprocess_exec(
            *command("up"),
            env=command_environment(**environ),
            cwd=folder,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            said = await ready(process)
            gateway = f"http://127.0.0.1:{environ['HEADSTART_GATEWAY_PORT']}"
            tasks = [
                asyncio.create_task(
                    localai.ask("POST", f"{gateway}/v1/chat/completions", json=body)
                )
                for body in (
                    {"model": "warm", "messages": [], "max_tokens": 400},
                    {"model": "warm", "messages": [], "max_tokens": 4000, "stream": True},
                    {"model": "cold", "messages": []},
                )
            ]

            async def busy() -> bool:
                models = (await localai.state())["models"]
                return bool(models["warm"]["in_flight"] and models["cold"]["residency"] != "cold")

            await until(busy, "requests run and a model loads")
            ours = [pid for pid in family() if pid not in before]
            process.send_signal(signal.SIGTERM)
            async with asyncio.timeout(END_S):
                rest, _ = await process.communicate()
            said += rest.decode()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            assert process.returncode == 0
            assert "service_killed" not in said
            assert "Traceback" not in said
            assert [pid for pid in ours if not is_gone(pid)] == []
        finally:
            if process.returncode is None:
                os.kill(process.pid, signal.SIGKILL)
                await process.communicate()


async def ready(process: asyncio.subprocess.Process) -> str:
    """What it said until all was there."""
    assert process.stdout is not None
    said = ""
    while line := (await process.stdout.readline()).decode():
        said += line
        if "Ctrl-C" in line:
            return said
    raise AssertionError(said)
