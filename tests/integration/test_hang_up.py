"""SIGHUP to each process of a stack: none of them ends, and each says what it made of it."""

from __future__ import annotations

import asyncio
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.services import SERVICES
from cli.stack import Stack

pytestmark = pytest.mark.integration

SAYS = {
    "gateway": "configuration_loaded",
    "controller": "configuration_loaded",
    "predictor": "configuration_needs_restart",
    "control": "configuration_loaded",
    "workers": "configuration_needs_restart",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


@pytest.mark.timeout(120)
async def test_no_process_ends_and_those_that_can_take_the_file_over(tmp_path: Path, folder: Path):
    file = tmp_path / "headstart.yaml"
    file.write_text("scheduler: {mode: observe}\nqueue_config: {batch_capacity: 5}\n")
    models = folder / "models.json"
    models.write_text('{"models": [{"name": "tiny", "load_s": 0.1, "footprint_mb": 100}]}')
    async with Stack(
        {"HEADSTART_CONFIG": str(file)},
        folder,
        emulator_args=("--models", str(models)),
        start_s=90.0,
    ) as stack:
        pids = {name: stack.pid(name) for name in SERVICES}
        file.write_text("scheduler: {mode: active}\nqueue_config: {batch_capacity: 6}\n")
        for name in SERVICES:
            stack.kill(name, signal.SIGHUP)

        def log(name: str) -> str:
            return (stack.log_dir / f"{name}.log").read_text()

        async with asyncio.timeout(30.0):
            while not all(word in log(name) for name, word in SAYS.items()):  # noqa: ASYNC110 - others write
                await asyncio.sleep(0.05)
        assert "queue_config.batch_capacity" in log("gateway")
        assert "scheduler.mode" in log("controller")
        await asyncio.sleep(0.5)
        assert {name: stack.pid(name) for name in SERVICES} == pids
        assert not any(stack.restarts(name) for name in SERVICES)
