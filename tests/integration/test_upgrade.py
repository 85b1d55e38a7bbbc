"""This release starts on what releases before it left, and leaves alone what newer ones did."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import redis
import structlog

import api.control.__main__ as control
import api.gateway.__main__ as gateway
import controller.__main__ as controller
import predictor.__main__ as predictor
import workers.__main__ as workers
from adapters.champion_files import DiskChampionStore
from adapters.codec import EVENT_TYPES, decode_as
from adapters.embedded_server import EmbeddedServer
from adapters.redis_client import connect
from adapters.redis_history import RedisHistoryStore
from cli.ports import free_port
from cli.stack import Stack
from contracts.data_format import FORMAT, read_mark
from contracts.errors import Invalid
from contracts.ids import ModelId
from predictor.snapshot import MAGIC, Sealing, unseal
from tests.upgrade_data import (
    BATCH_LINES,
    FIXTURES,
    emulator_arguments,
    environment,
    restore,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

RELEASES = sorted(path.name for path in FIXTURES.iterdir())
PATIENCE_S = 60.0
ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="hs-", dir="/tmp", ignore_cleanup_errors=True) as name:
        yield Path(name)


def records(client: redis.Redis, key: str) -> list[dict[str, Any]]:
    entries: Any = client.xrange(key)
    return [json.loads(fields[b"r"]) for _, fields in entries]


def add_what_is_newer(url: str) -> int:
    """Fields, kinds and keys of a release to come; how many records nobody here can read."""
    with redis.Redis.from_url(url, protocol=2) as client:
        known = records(client, "headstart:events")[0]
        with_field = {**known, "data": {**known["data"], "event_id": "new-1", "mood": "calm"}}
        of_kind = {"v": 1, "kind": "RequestDreamt", "data": {"at_s": 1.0}}
        of_version = {**known, "v": 99, "data": {"shape": "another"}}
        assert decode_as(json.dumps(with_field), EVENT_TYPES) is not None
        for record in (with_field, of_kind, of_version):
            client.xadd("headstart:events", {"r": json.dumps(record)})
        client.xadd("headstart:to-controller", {"r": json.dumps(of_kind)})
        sla: Any = client.hget("headstart:slas", "heron-chat")
        told = json.loads(sla)
        told["data"]["mood"] = "calm"
        client.hset("headstart:slas", "heron-chat", json.dumps(told))
        client.hset("headstart:moods", "heron-chat", "calm")
    return 2


class Asking:
    """The control API of the stack."""

    def __init__(self, stack: Stack, session: aiohttp.ClientSession) -> None:
        self._url = stack.control_url
        self._session = session

    async def json(self, path: str) -> Any:
        return json.loads(await self.text(path))

    async def text(self, path: str) -> str:
        async with self._session.get(self._url + path) as answer:
            told = await answer.text()
            assert answer.status == 200, (path, told)
            return told

    async def until(self, path: str, field: str, value: object) -> Any:
        end_s = time.monotonic() + PATIENCE_S
        while (told := await self.json(path))[field] != value:
            assert time.monotonic() < end_s, told
            await asyncio.sleep(0.1)
        return told

    async def custom_ids(self, file_id: str) -> list[str]:
        lines = (await self.text(f"/v1/files/{file_id}/content")).splitlines()
        return [json.loads(line)["custom_id"] for line in lines]


async def rings_of(url: str, model: str) -> int:
    client = connect(url)
    try:
        stored = await RedisHistoryStore(client).read(ModelId(model))
    finally:
        await client.aclose()
    hours = (page for page in stored if page.width_s == 3600.0)
    return sum(bucket.arrivals for page in hours for bucket in page.buckets)


@pytest.mark.parametrize("release", RELEASES)
async def test_all_that_a_release_left_is_read_and_goes_on(release: str, folder: Path):
    kept, data_dir = FIXTURES / release, folder / "data"
    made = json.loads((kept / "made.json").read_text())
    (folder / "headstart.yaml").write_text((kept / "headstart.yaml").read_text())
    await restore(kept, data_dir)
    async with EmbeddedServer(data_dir) as server:
        url = server.url.replace("%2F", "/")
        unreadable = await asyncio.to_thread(add_what_is_newer, url)
        before = await rings_of(server.url, "heron-chat")
    assert before > 0
    told = environment(folder, (time.time(), made["until_s"] + 5.0))
    stack = Stack(told, data_dir, emulator_args=emulator_arguments(folder), start_s=90.0)
    async with stack, aiohttp.ClientSession() as session:
        ask = Asking(stack, session)
        await what_people_set(ask)
        await what_was_measured(ask)
        await what_was_to_be_done(ask)
        assert await rings_of(stack.redis_url, "heron-chat") >= before
        metrics = await ask.text("/metrics")
        with redis.Redis.from_url(stack.redis_url.replace("%2F", "/"), protocol=2) as client:
            text: Any = client.get("headstart:format")
            assert client.hgetall("headstart:moods") == {b"heron-chat": b"calm"}
        logs = "\n".join(log.read_text(errors="replace") for log in stack.log_dir.iterdir())
    for marked in (text, (data_dir / "format").read_bytes()):
        mark = read_mark(marked)
        assert mark is not None
        assert mark.number == FORMAT
    counted = [line for line in metrics.splitlines() if '"unreadable_events"' in line]
    assert [float(line.split()[-1]) for line in counted] == [unreadable]
    assert "Traceback" not in logs


async def what_people_set(ask: Asking) -> None:
    sla = await ask.json("/v1/slas/heron-chat")
    assert (sla["target_s"], sla["percentile"], sla["class"]) == (2.5, 90.0, "batch")
    await ask.until("/v1/models/wren-embed", "pinned", value=True)
    assert (await ask.json("/v1/mode"))["mode"] == "active"


async def what_was_measured(ask: Asking) -> None:
    profile = await ask.json("/v1/models/heron-chat/profile")
    counts = {number["name"]: number["count"] for number in profile["numbers"]}
    assert counts["token_s_at_1"] >= 4, profile
    assert profile["configurations"] != []
    assert (await ask.json("/v1/forecasts/heron-chat"))["model"] == "heron-chat"


async def what_was_to_be_done(ask: Asking) -> None:
    batches = (await ask.json("/v1/batches"))["data"]
    assert sorted(batch["request_counts"]["total"] for batch in batches) == [3, BATCH_LINES]
    for batch in batches:
        ended = await ask.until(f"/v1/batches/{batch['id']}", "status", "completed")
        count = ended["request_counts"]["total"]
        assert ended["request_counts"] == {"total": count, "completed": count, "failed": 0}
        ids = await ask.custom_ids(ended["output_file_id"])
        assert ids == [f"bird-{number}" for number in range(count)], "each line is there once"


@pytest.mark.parametrize("release", RELEASES)
async def test_a_champion_of_a_release_is_believed_with_its_key(release: str, folder: Path):
    await restore(FIXTURES / release, folder / "data")
    champions = DiskChampionStore(folder / "data")
    snapshot, key = await champions.get(), await champions.key()
    assert snapshot is not None
    assert snapshot.startswith(MAGIC)
    with pytest.raises(Invalid, match="made with"):
        unseal(snapshot, Sealing(key=key, versions={"numpy": "0.0"}))


STARTS: dict[str, Callable[[], int]] = {
    "gateway": gateway.main,
    "control": control.main,
    "predictor": predictor.main,
    "controller": controller.main,
    "workers": lambda: workers.main(["--queue", "all"]),
}
NEWER = '{"format": 99, "written_by": "9.9"}'


@pytest.fixture
def environ(
    redis_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[dict[str, str]]:
    """What each process is told; nothing of this process is changed for good."""
    told = {"HEADSTART_REDIS_URL": redis_url, "HEADSTART_DATA_DIR": str(folder / "data")}
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    for module in (gateway, control, predictor, controller, workers):
        monkeypatch.setattr(module, "harden", lambda: None)
    yield told
    structlog.reset_defaults()


@pytest.fixture
def newer(redis_url: str) -> Iterator[Callable[[], object]]:
    """Redis has data of a newer release; what is in it."""
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        client.set("headstart:format", NEWER)
        yield lambda: {key: client.dump(key) for key in client.scan_iter()}


@pytest.mark.parametrize("name", STARTS)
def test_newer_data_keeps_every_process_from_starting(
    name: str,
    environ: dict[str, str],
    newer: Callable[[], object],
    folder: Path,
    capsys: pytest.CaptureFixture[str],
):
    before = newer()
    assert STARTS[name]() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Redis has data of format 99, written by headstart 9.9; this is headstart " in line
    assert "start that release again" in line
    assert newer() == before
    assert not (folder / "data").exists()


@pytest.mark.parametrize("name", ["control", "workers"])
def test_newer_data_of_jobs_keeps_those_that_use_it_from_starting(
    name: str,
    environ: dict[str, str],
    newer: Callable[[], object],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    before = newer()
    monkeypatch.setenv("HEADSTART_REDIS_JOBS_URL", environ["HEADSTART_REDIS_URL"])
    monkeypatch.setenv("HEADSTART_REDIS_URL", f"unix://{folder}/nobody.sock")
    assert STARTS[name]() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Redis has data of format 99" in line
    assert newer() == before


@pytest.mark.parametrize("name", ["control", "predictor", "workers"])
def test_a_newer_folder_keeps_those_that_use_it_from_starting(
    name: str, environ: dict[str, str], folder: Path, capsys: pytest.CaptureFixture[str]
):
    (folder / "data").mkdir()
    (folder / "data" / "format").write_text(NEWER)
    assert STARTS[name]() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{folder / 'data'} has data of format 99, written by headstart 9.9" in line
    assert [path.name for path in (folder / "data").iterdir()] == ["format"]


def test_all_of_it_at_once_starts_nothing_either(
    environ: dict[str, str], newer: Callable[[], object], folder: Path
):
    before = newer()
    run = subprocess.run(
        [sys.executable, "-m", "cli", "up"],
        cwd=ROOT,
        env={
            **os.environ,
            **environ,
            "HEADSTART_GATEWAY_PORT": str(free_port()),
            "HEADSTART_CONTROL_PORT": str(free_port()),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert run.returncode == 2, run.stderr
    (line,) = run.stderr.splitlines()
    assert line.startswith("headstart: Redis has data of format 99")
    assert newer() == before
    assert not (folder / "data" / "logs").exists()
