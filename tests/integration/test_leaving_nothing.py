"""``headstart footprint``, ``variants`` and ``remove``, over an emulated LocalAI and a Redis."""

from __future__ import annotations

import asyncio
import json
import sys
import tarfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
import redis

from adapters.clock import ScaledClock
from adapters.localai_model_files import LocalAIModelFiles
from adapters.redis_client import connect
from adapters.redis_footprint import RedisFootprint
from adapters.redis_lease import RedisLease
from adapters.redis_load_lock import RedisLoadLock
from adapters.redis_stores import RedisControlStore
from adapters.rq_queue import RqJobQueue
from cli.__main__ import main
from contracts.config import NodeConfig
from contracts.ids import ModelId, NodeId
from contracts.variants import Rung, RungKind, made_name
from contracts.world import Mode
from controller.variant_documents import document_of
from tests.emulator_server import RunningEmulator
from tests.redis_cluster import PrivateCluster
from workers.queues import QUEUES

pytestmark = pytest.mark.integration

LLAMA = {"name": "llama", "file": "llama.Q8_0.gguf"}
CPU = Rung(model=made_name("llama", "cpu"), kind=RungKind.CPU, is_made=True, gpu_layers=0)
OLD = Rung(
    model=made_name("llama", "q2_k"),
    kind=RungKind.QUANTISED,
    is_made=True,
    file="llama.Q2_K.gguf",
)
FOREIGN = ModelId("mine--headstart-like")

Run = Callable[..., tuple[object, str, str]]


@pytest.fixture
def emulator():
    with RunningEmulator([LLAMA]) as running:
        yield running


@pytest.fixture
async def files(emulator):
    """Two variants of ours, one of them in the configuration, and a file that looks alike."""
    folder = LocalAIModelFiles(
        NodeConfig(node=NodeId("localai"), url=emulator.url), ScaledClock(1.0)
    )
    base = await folder.read(ModelId("llama"))
    assert base is not None
    await folder.write(document_of(ModelId("llama"), base, CPU))
    await folder.write(document_of(ModelId("llama"), base, OLD))
    await folder.write({"name": FOREIGN, "parameters": {"model": "mine.gguf"}})
    yield folder
    await folder.close()


@pytest.fixture
def run(emulator, monkeypatch, capsys, tmp_path) -> Run:
    """``headstart`` in this process."""
    config = tmp_path / "headstart.yaml"
    config.write_text("models: {llama: {variants: [{cpu: true}]}}\n")
    monkeypatch.setenv("HEADSTART_CONFIG", str(config))
    monkeypatch.setenv("HEADSTART_LOCALAI_URL", emulator.url)
    monkeypatch.setenv("HEADSTART_DATA_DIR", str(tmp_path / "data"))

    def run(*arguments: str, **environment: str) -> tuple[object, str, str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setattr(sys, "argv", ["headstart", *arguments])
        with pytest.raises(SystemExit) as end:
            main()
        said = capsys.readouterr()
        return end.value.code or 0, said.out, said.err

    return run


def in_data_dir(tmp_path: Path, *names: str) -> Path:
    folder = tmp_path / "data"
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("12345")
    return folder


def threaded(run: Run) -> Callable[..., Awaitable[tuple[object, str, str]]]:
    """The command has an event loop of its own."""

    async def go(*arguments: str, **environment: str) -> tuple[object, str, str]:
        return await asyncio.to_thread(run, *arguments, **environment)

    return go


async def test_what_no_ladder_names_is_pruned_and_nothing_else(emulator, files, run):
    go = threaded(run)
    _, out, _ = await go("variants", "list")
    assert f"{CPU.model} (cpu of llama), in use" in out
    assert f"{OLD.model} (quantised of llama), no ladder names it" in out
    _, out, _ = await go("variants", "prune", "--dry-run")
    assert out == f"would remove localai: {OLD.model}\n"
    _, out, _ = await go("variants", "prune")
    assert out == f"removed localai: {OLD.model}\n"
    assert await files.names() == ("llama", CPU.model, FOREIGN)
    assert emulator.get("/emulator/state")["removed_files"] == []
    _, out, _ = await go("variants", "prune")
    assert out == "nothing to remove\n"
    _, out, _ = await go("variants", "list", "--json")
    (left,) = json.loads(out)["variants"]
    assert (left["model"], left["wanted"]) == (CPU.model, True)
    _, out, _ = await go("variants", "prune", "--all")
    assert await files.names() == ("llama", FOREIGN)


async def test_all_that_was_written_is_listed_and_taken_away(
    files, run, redis_url, tmp_path, emulator
):
    go = threaded(run)
    data_dir = in_data_dir(tmp_path, "redis/dump.rdb", "logs/gateway.log", "snapshot.key", "mine")
    server = redis.Redis.from_url(redis_url, decode_responses=True)
    server.set("headstart:mode", "active")
    server.set("somebody:else", "1")
    jobs = RqJobQueue(server, QUEUES)
    assert jobs.enqueue("background", "noop", {}, "job-1")
    server.hset("rq:job:theirs", mapping={"origin": "their-queue"})
    server.rpush("rq:queue:their-queue", "theirs")
    kept = {"somebody:else", "rq:job:theirs", "rq:queue:their-queue"}

    _, out, _ = await go("footprint", "--json", HEADSTART_REDIS__URL=redis_url)
    told = json.loads(out)
    assert {one["model"] for one in told["variants"]} == {CPU.model, OLD.model}
    assert told["redis"]["headstart:"] >= 1
    assert told["redis"]["rq:"] >= 2
    names = [Path(one["path"]).name for one in told["files"]]
    assert names == ["redis", "logs", "snapshot.key"]
    assert (told["running"], told["faults"]) == (False, [])

    code, out, err = await go("remove")
    assert code == 2
    assert "nothing was removed: say --yes" in err
    assert str(CPU.model) in out
    code, out, _ = await go("remove", "--yes")
    assert code == 0
    assert f"removed localai: model {CPU.model}" in out
    assert await files.names() == ("llama", FOREIGN)
    assert emulator.get("/emulator/state")["removed_files"] == []
    left = set(server.scan_iter())
    assert kept <= left
    assert left - kept <= {"rq:queues", "rq:workers"}
    assert [path.name for path in data_dir.iterdir()] == ["mine"]
    _, out, _ = await go("remove", "--yes")
    assert out == "nothing of headstart's is left\n"
    server.close()


async def test_on_a_cluster_every_node_and_the_server_for_jobs_are_cleared(
    run, files, redis_cluster: PrivateCluster, redis_url: str, tmp_path: Path
):
    go = threaded(run)
    client = connect(redis_cluster.url)
    try:
        control = RedisControlStore(client)
        await control.set_mode(Mode.ACTIVE)
        await control.set_pin(ModelId("llama"), pinned=True)
        for number in range(30):
            await RedisLoadLock(client).take(ModelId(f"m{number}"), "g", hold_s=60.0)
        await client.set("somebody:else", 1)
    finally:
        await client.aclose()
    with redis.Redis.from_url(redis_url) as server:
        assert RqJobQueue(server, QUEUES).enqueue("background", "noop", {}, "job-1")
    places = {"HEADSTART_REDIS__URL": redis_cluster.url, "HEADSTART_REDIS__JOBS_URL": redis_url}

    _, out, _ = await go("footprint", "--json", **places)
    told = json.loads(out)
    assert (told["redis"]["headstart:"], told["faults"]) == (32, [])
    assert told["redis"]["rq:"] >= 2
    archive = tmp_path / "kept.tar.gz"
    code, _, err = await go("backup", str(archive))
    assert code == 0, err
    with tarfile.open(archive) as kept:
        content = kept.extractfile("settings.json")
        assert content is not None
        said = json.load(content)
    assert (said["pins"], said["mode"]) == (["llama"], "active")

    code, out, _ = await go("remove", "--yes")
    assert code == 0, out
    left = {key for one in redis_cluster.primaries for key in one.ask("KEYS", "*")}
    assert left == {b"somebody:else"}
    with redis.Redis.from_url(redis_url) as server:
        assert set(server.scan_iter()) <= {b"rq:queues", b"rq:workers"}


async def test_nothing_is_removed_under_a_running_controller(run, redis_url, files):
    client = connect(redis_url)
    now_s = ScaledClock(1.0).now_s()
    assert await RedisLease(client).acquire("one", now_s=now_s, lease_s=60.0)
    assert await RedisFootprint(client, QUEUES).is_led(now_s)
    code, _, err = await threaded(run)("remove", "--yes", HEADSTART_REDIS__URL=redis_url)
    assert (code, "stop headstart first" in err) == (2, True)
    assert CPU.model in await files.names()
    await client.aclose()


async def test_what_cannot_be_looked_at_is_told_and_nothing_is_removed(run, tmp_path):
    data_dir = in_data_dir(tmp_path, "logs/gateway.log")
    go = threaded(run)
    away: Mapping[str, str] = {"HEADSTART_LOCALAI_URL": "http://127.0.0.1:9"}
    _, out, _ = await go("footprint", **away)
    assert "not looked at: localai" in out
    assert "logs: 1 files" in out
    code, _, err = await go("remove", "--yes")
    assert (code, "nothing was removed" in err) == (1, True)
    assert (data_dir / "logs").is_dir()
