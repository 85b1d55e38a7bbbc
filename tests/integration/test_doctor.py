"""The check-up of whole deployments: one that is well, and five that are broken."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
from aiohttp import web

from adapters.settings import load_settings
from cli.checkup.findings import Finding, Verdict
from cli.checkup.looking import look
from tests.emulator_server import RunningEmulator
from tests.redis_cluster import PrivateCluster

pytestmark = pytest.mark.integration

MODELS = (
    {"name": "chat", "footprint_mb": 100, "load_s": 1.0},
    {"name": "broken", "footprint_mb": 100, "load_s": 1.0},
)
KEY = "4f1c9a7e5b3d2086"
ROOT = Path(__file__).parents[2]


def checked(
    tmp_path: Path, localai: str, *, warm_up: tuple[str, ...] | None = None, **more: str
) -> list[Finding]:
    environ = {
        "HEADSTART_DATA_DIR": str(tmp_path),
        "HEADSTART_LOCALAI_URL": localai,
        "HEADSTART_GATEWAY__KEYS": KEY,
        "HEADSTART_CONTROL__ADMIN_KEY": KEY,
        "HEADSTART_SCHEDULER__MODE": "active",
        **more,
    }
    return asyncio.run(look(load_settings(environ), warm_up=warm_up))


def bad(found: list[Finding], *, ways: bool = False) -> dict[str, Verdict]:
    """What is not well, but for what a machine for tests is, and how busy it is."""
    of_the_machine = ("disk.", "gpu.", "port", *(() if ways else ("latency", "clock")))
    return {
        one.check: one.verdict
        for one in found
        if one.verdict is not Verdict.OK and not one.check.startswith(of_the_machine)
    }


@pytest.fixture
def redis_ok(start_redis):
    return start_redis(appendonly="yes").url


def test_a_deployment_that_is_well(tmp_path: Path, redis_ok: str):
    with RunningEmulator(MODELS) as emulator:
        found = checked(tmp_path, emulator.url, warm_up=("chat",), HEADSTART_REDIS_URL=redis_ok)
    assert bad(found) == {}
    checks = {one.check for one in found}
    assert checks >= {
        "redis.persistence", "redis.eviction", "clock", "latency", "localai.version",
        "localai.models", "model.warm_up", "keys.admin", "keys.gateway", "memory.reserve",
    }  # fmt: skip


def test_every_node_of_a_cluster_and_the_server_for_jobs(
    tmp_path: Path, redis_cluster: PrivateCluster, redis_ok: str
):
    found = checked(
        tmp_path,
        "http://127.0.0.1:1",
        HEADSTART_REDIS_URL=redis_cluster.url,
        HEADSTART_REDIS_JOBS_URL=redis_ok,
    )
    (nodes,) = (one for one in found if one.check == "redis.cluster")
    assert nodes.verdict is Verdict.WARN
    assert "without a replica" in nodes.what
    kept = {one.subject: one.verdict for one in found if one.check == "redis.persistence"}
    names = {f"redis 127.0.0.1:{server.port}" for server in redis_cluster.servers}
    assert kept == {**dict.fromkeys(names, Verdict.FAIL), "jobs": Verdict.OK}


def test_names_that_no_localai_lists(tmp_path: Path, redis_ok: str):
    file = tmp_path / "headstart.yaml"
    file.write_text("models: {chat: {variants: [chat-smal]}, brokn: {pinned: true}}")
    with RunningEmulator(MODELS) as emulator:
        found = checked(
            tmp_path, emulator.url, HEADSTART_REDIS_URL=redis_ok, HEADSTART_CONFIG=str(file)
        )
    assert bad(found) == {"localai.names": Verdict.WARN}
    assert {one.subject for one in found if one.check == "localai.names"} == {"chat-smal", "brokn"}


def test_without_localai(tmp_path: Path, redis_ok: str):
    found = checked(tmp_path, "http://127.0.0.1:1", HEADSTART_REDIS_URL=redis_ok)
    assert bad(found) == {"localai": Verdict.FAIL}


def test_a_localai_whose_own_rules_fight_ours(tmp_path: Path, redis_ok: str):
    with RunningEmulator(MODELS, model_limit=1, watchdog_idle_s=600.0) as emulator:
        found = checked(tmp_path, emulator.url, HEADSTART_REDIS_URL=redis_ok)
    assert bad(found) == {"localai.limit": Verdict.WARN, "localai.settings": Verdict.WARN}


def test_a_redis_that_forgets_and_one_that_is_away(tmp_path: Path, start_redis):
    server = start_redis(**{"maxmemory": "50mb", "maxmemory-policy": "allkeys-lru"})
    with RunningEmulator(MODELS) as emulator:
        found = checked(tmp_path, emulator.url, HEADSTART_REDIS_URL=server.url)
        assert bad(found) == {"redis.persistence": Verdict.FAIL, "redis.eviction": Verdict.FAIL}
        server.kill()
        found = checked(tmp_path, emulator.url, HEADSTART_REDIS_URL=server.url)
        assert bad(found) == {"redis": Verdict.FAIL}


def test_keys_that_can_be_guessed_and_a_model_that_does_not_answer(tmp_path: Path, redis_ok: str):
    with RunningEmulator(MODELS) as emulator:
        emulator.arm(
            {"kind": "load_fail", "model": "broken", "times": 9, "message": "no such backend"}
        )
        found = checked(
            tmp_path,
            emulator.url,
            warm_up=(),
            HEADSTART_REDIS_URL=redis_ok,
            HEADSTART_GATEWAY__KEYS="sk-1234",
            HEADSTART_CONTROL__ADMIN_KEY="admin",
        )
    assert bad(found) == {
        "keys.admin": Verdict.FAIL,
        "keys.gateway": Verdict.FAIL,
        "model.warm_up": Verdict.FAIL,
    }


async def test_a_clock_that_is_wrong_and_a_way_that_is_long(tmp_path: Path, redis_ok: str):
    async def late(_request: web.Request) -> web.Response:
        await asyncio.sleep(0.12)
        date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() - 60))
        return web.json_response({}, headers={"Date": date})

    app = web.Application()
    app.router.add_get("/readyz", late)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    found = await asyncio.to_thread(checked, tmp_path, url, HEADSTART_REDIS_URL=redis_ok)
    # What the check-up has closed is seen here before the loop ends.
    await asyncio.sleep(0.2)
    await runner.cleanup()
    await asyncio.sleep(0.05)
    assert bad(found, ways=True) == {
        "clock": Verdict.FAIL,
        "latency": Verdict.FAIL,
        "localai.calls": Verdict.WARN,
        "localai": Verdict.FAIL,
    }


def headstart(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "cli", *arguments],
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), **environ},
        timeout=60,
        check=False,
    )


def test_the_command_says_it_for_people_and_programs_and_by_its_exit_code(
    tmp_path: Path, redis_ok: str
):
    environ = {
        "HEADSTART_DATA_DIR": str(tmp_path),
        "HEADSTART_LOCALAI_URL": "http://127.0.0.1:1",
        "HEADSTART_REDIS_URL": redis_ok,
    }
    told = headstart("doctor", "--json", **environ)
    assert told.returncode == 1, told.stderr
    said = json.loads(told.stdout.splitlines()[-1])
    assert said["worst"] == "fail"
    (lost,) = [one for one in said["findings"] if one["check"] == "localai"]
    assert lost["remedy"] == "start LocalAI, or set localai.url"
    shown = headstart("doctor", "--only-bad", **environ)
    assert "→ start LocalAI" in shown.stdout
    assert "\nok " not in shown.stdout


def test_a_backup_holds_what_cannot_be_had_again_and_the_check_up_knows(
    tmp_path: Path, redis_ok: str
):
    with RunningEmulator(MODELS) as emulator:
        environ = {
            "HEADSTART_DATA_DIR": str(tmp_path),
            "HEADSTART_LOCALAI_URL": emulator.url,
            "HEADSTART_REDIS_URL": redis_ok,
        }
        done = headstart("backup", **environ)
        assert done.returncode == 0, done.stderr
        (path,) = (tmp_path / "backups").glob("*.tar.gz")
        assert path.stat().st_mode & 0o777 == 0o600
        with tarfile.open(path) as archive:
            names = archive.getnames()
        assert set(names) == {
            "models/localai/broken.yaml", "models/localai/chat.yaml", "settings.json",
        }  # fmt: skip
        folder = tmp_path / "models"
        folder.mkdir()
        (folder / "chat.yaml").write_text("name: chat\nbackend: llama-cpp\n")
        found = checked(
            tmp_path,
            emulator.url,
            HEADSTART_REDIS_URL=redis_ok,
            HEADSTART_LOCALAI__MODELS_PATH=str(folder),
        )
        assert [one.verdict for one in found if one.check == "models.backup"] == [Verdict.OK]
    lost = headstart("backup", **{**environ, "HEADSTART_LOCALAI_URL": "http://127.0.0.1:1"})
    assert "127.0.0.1:1" in lost.stderr
