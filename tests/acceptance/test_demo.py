"""``headstart demo`` and ``headstart replay`` as people run them, from first line to last."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import psutil
import pytest
import pytest_asyncio

from tests.acceptance.deployment import (
    PATIENCE_S,
    Answer,
    command,
    command_environment,
    is_gone,
    until,
)

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(360)]

END_S = 10.0
"""Real seconds in which all of it has to end once it is told to."""

MODELS = ("alpha", "beta", "gamma", "delta", "epsilon")
ANY_PORTS = {"HEADSTART_GATEWAY_PORT": "0", "HEADSTART_CONTROL_PORT": "0"}
EVERY_S = 3.0
MINUTES = 3
ROW_KEYS = {
    "policy", "n", "cold", "slo", "mean_wait_s", "p50_wait_s", "p95_wait_s", "p99_wait_s",
    "loads", "prefetches", "wasted_prefetches",
}  # fmt: skip


class Running:
    """A command that runs, and what it has said so far."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[str] = []

    async def said(self, pattern: str) -> re.Match[str]:
        """Read on until a line matches."""
        assert self.process.stdout is not None
        async with asyncio.timeout(2 * PATIENCE_S):
            while line := (await self.process.stdout.readline()).decode():
                self.lines.append(line)
                if found := re.search(pattern, line):
                    return found
        raise AssertionError(f"it ended without saying {pattern}: {''.join(self.lines)}")

    async def ended(self, within_s: float) -> int:
        """Its exit code; everything that it started has to be gone by then."""
        async with asyncio.timeout(within_s):
            rest, _ = await self.process.communicate()
        self.lines += rest.decode().splitlines(keepends=True)
        assert self.process.returncode is not None
        return self.process.returncode

    def family(self) -> list[int]:
        return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]


@asynccontextmanager
async def running(*arguments: str, folder: str = "/tmp", **environ: str) -> AsyncIterator[Running]:
    """A ``headstart`` command, with everything that it says; never left behind."""
    process = await asyncio.create_subprocess_exec(
        *command(*arguments),
        env=command_environment(**environ),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        limit=2**20,
    )
    try:
        yield Running(process)
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def get(url: str) -> Answer:
    async with aiohttp.ClientSession() as session:
        try:
            async with session.get(url) as answer:
                return Answer(status=answer.status, text=await answer.text())
        except aiohttp.ClientError:
            return Answer(status=None)


def demo_folders() -> set[str]:
    """The folders that demos have made and not yet taken away."""
    return {path.name for path in Path(tempfile.gettempdir()).glob("headstart-demo-*")}


async def all_gone(pids: list[int]) -> None:
    async def gone() -> bool:
        return all(is_gone(pid) for pid in pids)

    await until(gone, f"none of the processes {pids} is left", within_s=END_S)


@pytest_asyncio.fixture(scope="module", loop_scope="session", autouse=True)
async def replay() -> AsyncIterator[Running]:
    """A replay of a made-up trace; it runs while the demo is looked at."""
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp") as folder:
        trace = Path(folder) / "trace.csv"
        rows = [
            f"{number * EVERY_S},{MODELS[number * number % len(MODELS)]},1.0"
            for number in range(int((MINUTES + 1) * 60 / EVERY_S))
        ]
        trace.write_text("t_s,model,service_s\n" + "\n".join(rows) + "\n")
        async with running(
            "replay", str(trace), "--against", "localai-lru", "--json", "--time-scale", "20",
            "--minutes", str(MINUTES), "--capacity-mb", "12000",
        ) as replay:  # fmt: skip
            yield replay


async def test_the_demo_shows_forecasts_and_ends_by_itself_with_nothing_left():
    before = demo_folders()
    async with running("demo", "--seconds", "30", **ANY_PORTS) as demo:
        page = (await demo.said(r"dashboard +(http://\S+)")).group(1)
        gateway = (await demo.said(r"gateway +(http://\S+)/v1")).group(1)
        shown = await get(page)
        assert shown.status == 200
        assert "<html" in shown.text
        folders = demo_folders()

        async def forecasts() -> bool:
            answer = await get(page + "v1/forecasts")
            return answer.status == 200 and any(
                row["next_use"] is not None and row["signals"] for row in answer.json["data"]
            )

        await until(forecasts, "forecasts appear")

        async def traffic() -> bool:
            answer = await get(page + "v1/summary")
            return bool(answer.json["requests"] and answer.json["models_hot"])

        await until(traffic, "requests come and models are loaded")
        assert (await get(gateway + "/headstart/readyz")).status == 200
        family = demo.family()
        assert len(family) >= 7
        assert await demo.ended(30 + 2 * END_S) == 0
    assert "Traceback" not in "".join(demo.lines)
    assert "service_killed" not in "".join(demo.lines)
    await all_gone(family)
    assert not (folders - before) & demo_folders(), "its folder is gone"


@pytest.mark.parametrize("chosen", [signal.SIGINT, signal.SIGTERM])
async def test_the_demo_ends_at_once_when_it_is_told_to(chosen: signal.Signals, tmp_path: Path):
    # Nor does it mind whose configuration lies where it is started.
    (tmp_path / "headstart.yaml").write_text("gateway: {nonsense: 1}\n")
    async with running("demo", folder=str(tmp_path), **ANY_PORTS) as demo:
        await demo.said("Ctrl-C")
        family = demo.family()
        demo.process.send_signal(chosen)
        assert await demo.ended(END_S) == 0
    assert "Traceback" not in "".join(demo.lines)
    await all_gone(family)


async def test_a_replay_judges_both_sides_in_one_line_of_json(replay: Running):
    assert await replay.ended(4 * PATIENCE_S) == 0, "".join(replay.lines)
    result = json.loads(replay.lines[-1])
    assert {"rows", "time_scale", "jitter_p99_s", "seed"} <= set(result)
    assert result["time_scale"] == 20.0
    assert [row["policy"] for row in result["rows"]] == ["headstart", "localai-lru"]
    for row in result["rows"]:
        assert set(row) >= ROW_KEYS
        assert row["n"] == MINUTES * 60 / EVERY_S
        assert row["failed"] == 0
        assert 0.0 <= row["cold"] <= 1.0
        assert 0.0 <= row["slo"] <= 1.0
        assert row["p50_wait_s"] <= row["p95_wait_s"] <= row["p99_wait_s"]
        assert row["loads"] >= 1
        assert row["wasted_prefetches"] <= row["prefetches"]
    assert "Traceback" not in "".join(replay.lines)
