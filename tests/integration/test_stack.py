"""Whole stacks of real processes, and ``headstart up`` as people start it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil
import pytest

from adapters.redis_client import connect
from cli.ports import free_port
from cli.stack import Stack
from contracts.errors import Invalid
from tests.waiting import until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
MODELS = '{"models": [{"name": "tiny", "load_s": 0.1, "footprint_mb": 100}]}'


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.fixture
def models(folder: Path) -> Path:
    file = folder / "models.json"
    file.write_text(MODELS)
    return file


def is_gone(pid: int | None) -> bool:
    assert pid is not None
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


async def listed(url: str) -> list[str]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/v1/models") as answer:
        return [each["id"] for each in (await answer.json())["data"]]


async def test_a_stack_serves_survives_its_parts_and_goes_without_a_trace(
    folder: Path, models: Path
):
    stack = Stack(
        {"HEADSTART_LOGGING__LEVEL": "info"},
        folder / "data",
        services=("gateway", "controller"),
        emulator_args=["--models", str(models)],
    )
    async with stack:
        names = ("redis", "emulator", "gateway", "controller")
        pids = {name: stack.pid(name) for name in names}
        assert None not in pids.values()
        assert await listed(stack.gateway_url) == ["tiny"]

        stack.kill("emulator")
        await until(lambda: stack.restarts("emulator") == 1 and stack.is_ready("emulator"))
        assert await listed(stack.gateway_url) == ["tiny"]

        await stack.hold("redis")
        assert await listed(stack.gateway_url) == ["tiny"]
        await stack.release("redis")
        client = connect(stack.redis_url)
        assert await client.ping()
        await client.aclose()

        await stack.hold("controller")
        assert stack.pid("controller") is None
        await stack.release("controller")
        assert stack.is_ready("controller")
        pids |= {name: stack.pid(name) for name in names}
    assert all(is_gone(pid) for pid in pids.values())
    assert "gateway_started" in (folder / "data" / "logs" / "gateway.log").read_text()


async def test_a_killed_redis_server_is_started_again_under_a_running_stack(folder: Path):
    async with Stack({}, folder, services=("controller",)) as stack:
        pid = stack.pid("redis")
        stack.kill("redis", signal.SIGKILL)
        await until(lambda: stack.pid("redis") not in (None, pid) and stack.restarts("redis") == 1)


async def test_the_emulator_alone_needs_no_redis(folder: Path, models: Path):
    port = free_port()
    stack = Stack(
        {}, folder / "data", services=(), emulator_args=["--models", str(models), f"--port={port}"]
    )
    assert stack.emulator_url == f"http://127.0.0.1:{port}"
    async with stack:
        assert await listed(stack.emulator_url) == ["tiny"]
        with pytest.raises(KeyError):
            stack.pid("redis")
    assert not (folder / "data" / "redis").exists()


async def test_time_runs_fast_for_all_from_one_anchor(folder: Path, models: Path):
    stack = Stack(
        {"HEADSTART_ENV": "dev", "HEADSTART_TIME_SCALE": "30"},
        folder,
        services=("gateway",),
        emulator_args=["--models", str(models)],
    )
    async with stack:
        anchors = set()
        for name in ("gateway", "emulator"):
            pid = stack.pid(name)
            assert pid is not None
            anchors.add(psutil.Process(pid).environ()["HEADSTART_TIME_ANCHOR"])
    assert len(anchors) == 1


@pytest.mark.parametrize(
    ("environ", "services", "message"),
    [
        ({}, ("gateway", "cook"), "'cook' is no service; there are gateway"),
        ({"HEADSTART_TIME_SCALE": "30"}, ("gateway",), "HEADSTART_ENV=dev"),
        (
            {"HEADSTART_GATEWAY_PORT": "18099", "HEADSTART_CONTROL_PORT": "18099"},
            ("gateway", "control"),
            "18099",
        ),
    ],
)
async def test_what_cannot_work_is_said_before_anything_starts(
    folder: Path, environ: dict[str, str], services: tuple[str, ...], message: str
):
    with pytest.raises(Invalid, match=message):
        await Stack(environ, folder / "data", services=services).start()
    assert not (folder / "data").exists()


async def test_a_busy_port_names_who_has_it_and_what_to_set(folder: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        stack = Stack({"HEADSTART_GATEWAY_PORT": str(port)}, folder, services=("gateway",))
        with pytest.raises(
            Invalid,
            match=rf"^port {port} \(gateway\) is in use by .*\(process {os.getpid()}\); "
            r"set HEADSTART_GATEWAY_PORT to another port$",
        ):
            await stack.start()


def start_up(folder: Path, *arguments: str, **environ: str) -> subprocess.Popen[str]:
    ports = {
        "HEADSTART_GATEWAY_PORT": str(free_port()),
        "HEADSTART_CONTROL_PORT": str(free_port()),
        "HEADSTART_DATA_DIR": str(folder / "data"),
    }
    # As the installed command: the current folder is not searched for packages.
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "cli", "up", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **ports, **environ},
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def children_of(pid: int) -> list[psutil.Process]:
    return psutil.Process(pid).children(recursive=True)


def read_until(process: subprocess.Popen[str], ending: str) -> list[str]:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line.rstrip())
        if ending in line:
            return lines
    assert process.stderr is not None
    raise AssertionError(process.stderr.read())


async def test_up_says_where_things_are_and_ends_with_all_its_processes(folder: Path):
    # Folders of ours by name, where somebody starts it, must not be taken for our packages.
    for name in ("api", "data", "controller", "contracts"):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "__init__.py").write_text("raise SystemExit('the wrong package')")
    process = start_up(
        folder, "--localai", "http://127.0.0.1:9", "--without", "workers", "--without", "predictor"
    )
    try:
        lines = await asyncio.to_thread(read_until, process, "Ctrl-C")
        said = dict(line.split(maxsplit=1) for line in lines[:-1])
        assert said["dashboard"].startswith("http://127.0.0.1:")
        assert said["LocalAI"] == "http://127.0.0.1:9  (does not answer yet)"
        assert said["mode"].startswith("observe")
        async with (
            aiohttp.ClientSession() as session,
            session.get(said["dashboard"] + "/healthz") as answer,
        ):
            assert answer.status == 200
        children = children_of(process.pid)
        assert len(children) == 4
        process.send_signal(signal.SIGTERM)
        await asyncio.to_thread(process.wait, 15)
        assert process.returncode == 0
        assert all(is_gone(child.pid) for child in children)
    finally:
        process.kill()
        process.communicate()


async def test_up_killed_leaves_nothing_running(folder: Path):
    process = start_up(folder, "--without", "workers", "--without", "control")
    try:
        await asyncio.to_thread(read_until, process, "Ctrl-C")
        children = children_of(process.pid)
        process.kill()
        await until(lambda: all(is_gone(child.pid) for child in children))
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--without", "cook"], {}, "'cook' is no service"),
        (["--config", "missing.yaml"], {}, "missing.yaml"),
        ([], {"HEADSTART_GATEWAY_PORT": "a"}, "HEADSTART_GATEWAY_PORT"),
        ([], {"HEADSTART_REDIS_URL": "localhost"}, "redis"),
    ],
)
def test_up_refuses_what_cannot_work_with_exit_code_2_and_no_traceback(
    folder: Path, arguments: list[str], environ: dict[str, str], message: str
):
    process = start_up(folder, *arguments, **environ)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert message in errors
    assert "Traceback" not in errors


def test_up_with_a_busy_port_is_one_line(folder: Path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        process = start_up(folder, HEADSTART_CONTROL_PORT=str(port))
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert len(errors.splitlines()) == 1
    assert errors.startswith(f"headstart: port {port} (control) is in use by ")
    assert errors.rstrip().endswith("set HEADSTART_CONTROL_PORT to another port")
