"""The emulator as older versions, without the UI, for keys of users, and as it begins anew."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import aiohttp
import pytest

from contracts.errors import Invalid
from emulator.peers import parse_peers
from emulator.versions import is_there, parse_version
from tests.emulator_server import RunningEmulator

pytestmark = pytest.mark.integration

MODELS = [
    {"name": "a", "footprint_mb": 100, "load_s": 1.0},
    {"name": "b", "footprint_mb": 100, "load_s": 1.0, "first_touch_s": 30.0},
    {"name": "e", "footprint_mb": 10, "load_s": 1.0, "kind": "embedding", "strict": True},
    {"name": "d", "footprint_mb": 10, "load_s": 1.0, "kind": "detection"},
    {"name": "s", "footprint_mb": 10, "load_s": 1.0, "kind": "sound"},
]


async def ask(url: str, method: str, path: str, body: Any = None, key: str = "") -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    async with (
        aiohttp.ClientSession(url, headers=headers) as http,
        http.request(method, path, json=body) as answer,
    ):
        if answer.content_type == "application/json":
            return answer.status, await answer.json()
        return answer.status, (await answer.read()).decode("latin-1")


@pytest.mark.parametrize(
    ("version", "absent", "there"),
    [
        ("4.5", ["/v1/models/capabilities"], ["/api/aliases", "/api/settings", "/system"]),
        ("3.8", ["/api/resources", "/api/aliases", "/api/models/capabilities"], ["/api/settings"]),
        ("2.21", ["/api/settings", "/api/traces"], ["/system", "/v1/models", "/api/p2p"]),
    ],
)
async def test_an_older_version_lacks_what_came_later(version, absent, there):
    with RunningEmulator(MODELS, version=parse_version(version)) as emulator:
        assert (await ask(emulator.url, "GET", "/version"))[1]["version"].startswith(f"v{version}")
        status, _ = await ask(emulator.url, "POST", "/backend/load", {"model": "a"})
        assert status == 404
        for path in absent:
            assert (await ask(emulator.url, "GET", path))[0] == 404, path
        for path in there:
            assert (await ask(emulator.url, "GET", path))[0] == 200, path


async def test_without_its_ui_a_part_of_its_calls_is_gone():
    with RunningEmulator(MODELS, has_ui=False) as emulator:
        for path in ("/api/resources", "/api/settings", "/api/models/edit/a", "/app", "/"):
            assert (await ask(emulator.url, "GET", path))[0] == 404, path
        for path in ("/system", "/api/aliases", "/v1/models/capabilities", "/v1/models"):
            assert (await ask(emulator.url, "GET", path))[0] == 200, path


async def test_a_users_key_infers_and_does_not_manage():
    with RunningEmulator(MODELS, api_keys=("admin",), user_keys=("user",)) as emulator:
        url = emulator.url
        chat = {"model": "a", "messages": []}
        assert (await ask(url, "POST", "/v1/chat/completions", chat, "user"))[0] == 200
        assert (await ask(url, "GET", "/v1/models", key="user"))[0] == 200
        assert (await ask(url, "GET", "/models", key="user"))[0] == 200
        status, body = await ask(url, "GET", "/system", key="user")
        assert (status, body["error"]["type"]) == (403, "permission_error")
        assert (await ask(url, "GET", "/system", key="admin"))[0] == 200
        assert (await ask(url, "GET", "/system", key="nobody"))[0] == 401


@pytest.mark.parametrize("text", ["", "4", "5.0", "2.20", "latest"])
def test_a_version_that_never_was_is_refused(text):
    with pytest.raises(Invalid, match="must be a version from"):
        parse_version(text)


def test_the_longest_beginning_of_a_path_counts():
    assert is_there("/api/models/:id/load-status", (4, 0), has_ui=True)
    assert not is_there("/api/models/vram-estimate", (4, 0), has_ui=True)
    assert is_there("/v1/modelsx", (2, 21), has_ui=True)


async def test_a_restart_cuts_callers_and_forgets():
    with RunningEmulator(MODELS, scale=20.0, capacity_mb=1000) as emulator:
        url = emulator.url
        began = (await ask(url, "GET", "/metrics"))[1]
        await ask(url, "POST", "/backend/load", {"model": "a"})
        emulator.arm({"kind": "unload_lies", "model": "e"})
        await ask(url, "POST", "/backend/load", {"model": "e"})
        await ask(url, "POST", "/backend/shutdown", {"model": "e"})
        emulator.arm({"kind": "cooldown", "model": "d", "for_s": 200})
        long = {"model": "a", "messages": [], "max_tokens": 5000}
        chat = asyncio.create_task(ask(url, "POST", "/v1/chat/completions", long))
        load = asyncio.create_task(ask(url, "POST", "/backend/load", {"model": "b"}))
        await emulator.wait_for("request_started")
        await emulator.wait_for("load_started", model="b")
        emulator.arm({"kind": "restart"})
        for cut in (chat, load):
            with pytest.raises(aiohttp.ClientError):
                await cut
        await emulator.wait_for("unloaded", count=2)
        assert emulator.events("unloaded")[-1]["cause"] == "restart"
        assert (await ask(url, "GET", "/system"))[1]["loaded_models"] == []
        used = (await ask(url, "GET", "/api/resources"))[1]["aggregate"]["used_memory"]
        assert used == 0
        assert (await ask(url, "POST", "/backend/load", {"model": "d"}))[0] == 200
        assert (await ask(url, "GET", "/metrics"))[1] != began
        assert "process_start_time_seconds" in began


async def test_localai_evicts_by_itself():
    with RunningEmulator(MODELS) as emulator:
        await ask(emulator.url, "POST", "/backend/load", {"model": "a"})
        emulator.arm({"kind": "evict", "model": "a"})
        emulator.arm({"kind": "evict", "model": "b"})  # nothing to do
        await emulator.wait_for("unloaded")
        assert emulator.events("unloaded")[0]["cause"] == "limit"


async def test_a_stop_of_what_is_there_may_find_nothing():
    with RunningEmulator(MODELS) as emulator:
        await ask(emulator.url, "POST", "/backend/load", {"model": "a"})
        emulator.arm({"kind": "unload_404", "model": "a", "times": 1})
        stop = ("POST", "/backend/shutdown", {"model": "a"})
        assert (await ask(emulator.url, *stop))[0] == 404
        assert (await ask(emulator.url, *stop))[0] == 200


async def test_the_first_answer_after_a_load_may_be_slow():
    with RunningEmulator(MODELS, scale=50.0) as emulator:
        url = emulator.url
        await ask(url, "POST", "/backend/load", {"model": "b"})
        one = {"model": "b", "messages": [], "max_tokens": 1}
        took = []
        for _ in range(2):
            before = len(emulator.events())
            await ask(url, "POST", "/v1/chat/completions", one)
            started, ended = (
                next(e for e in emulator.events()[before:] if e["kind"] == kind)
                for kind in ("request_started", "request_ended")
            )
            took.append(ended["at_s"] - started["at_s"])
        assert took[0] > 30.0 > took[1]


async def test_a_strict_model_does_what_it_is_made_for():
    with RunningEmulator(MODELS) as emulator:
        url = emulator.url
        status, body = await ask(url, "POST", "/v1/chat/completions", {"model": "e"})
        assert (status, "Unimplemented" in body["error"]["message"]) == (500, True)
        asked = {"model": "e", "input": "a"}
        assert (await ask(url, "POST", "/v1/embeddings", asked))[0] == 200
        assert (await ask(url, "POST", "/v1/detection", {"model": "d", "image": "x"}))[0] == 200
        asked = {"model_id": "s", "text": "a"}
        assert (await ask(url, "POST", "/v1/sound-generation", asked))[0] == 200


async def test_a_connection_drops_without_a_byte_of_an_answer_that_is_no_stream():
    with RunningEmulator(MODELS) as emulator:
        await ask(emulator.url, "POST", "/backend/load", {"model": "a"})
        for after in (None, 2):
            fault = {"kind": "disconnect", "model": "a", "times": 1}
            emulator.arm(fault if after is None else {**fault, "after_tokens": after})
            with pytest.raises(aiohttp.ServerDisconnectedError):
                await ask(emulator.url, "POST", "/v1/chat/completions", {"model": "a"})


async def test_workers_and_peers_are_told_of():
    peers = (
        {"name": "w1", "kind": "worker", "available_ram": 1000},
        {"name": "f1", "kind": "federated"},
        {"name": "l1", "kind": "llama_cpp_worker"},
        {"name": "m1", "kind": "mlx_worker"},
    )
    assert parse_peers(peers) == peers
    with RunningEmulator(MODELS, peers=peers) as emulator:
        url = emulator.url
        (worker,) = (await ask(url, "GET", "/api/nodes"))[1]
        assert (worker["name"], worker["status"]) == ("w1", "healthy")
        swarm = (await ask(url, "GET", "/api/p2p"))[1]
        assert [len(nodes) for nodes in swarm.values()] == [1, 1, 1]
        emulator.arm({"kind": "peer_offline", "model": "l1"})
        shown = (await ask(url, "GET", "/api/p2p/workers"))[1]
        assert [node["isOnline"] for node in shown["nodes"]] == [False]
        counts = (await ask(url, "GET", "/api/p2p/stats"))[1]
        assert counts["llama_cpp_workers"] == {"online": 0, "total": 1}
        assert (await ask(url, "GET", "/api/p2p/federation"))[1]["nodes"][0]["isOnline"] is True
    with RunningEmulator(MODELS) as alone:
        assert (await ask(alone.url, "GET", "/api/nodes"))[0] == 404
        assert (await ask(alone.url, "GET", "/api/p2p"))[0] == 200
    with pytest.raises(Invalid, match="needs a name and a kind"):
        parse_peers([{"name": "x", "kind": "moon"}])


async def test_metrics_are_compressed_twice_where_compression_is_allowed():
    many = [{"name": f"model-{number}", "load_s": 0.1, "footprint_mb": 1} for number in range(60)]
    with RunningEmulator(many) as emulator:
        for number in range(60):
            body = {"model": f"model-{number}", "messages": [], "max_tokens": 1}
            await ask(emulator.url, "POST", "/v1/chat/completions", body)
        async with aiohttp.ClientSession(emulator.url) as http, http.get("/metrics") as answer:
            once = await answer.read()
    assert answer.headers.getall("Content-Encoding") == ["gzip"]
    assert b"process_start_time_seconds" in gzip.decompress(once)
