"""Settings and configurations of models, read and changed while the emulator runs."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_behaviour.timed_calls import (
    MODELS,
    SCALE,
    Timed,
    ask,
    chat,
    load,
    loaded,
    stop,
)

pytestmark = pytest.mark.integration


# Settings


async def test_settings_can_be_read_with_their_keys_in_clear():
    with RunningEmulator(MODELS, api_keys=("k1",), model_limit=2) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            body = (await ask(http, "GET", "/api/settings", Authorization="Bearer k1")).body
            assert body["api_keys"] == ["k1"]
            assert body["max_active_backends"] == 2
            assert body["watchdog_interval"] == "500ms"


async def test_a_limit_by_flag_hangs_the_first_change_while_inference_goes_on():
    with RunningEmulator(MODELS, scale=SCALE, model_limit=2) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(1.0):
                    await ask(http, "POST", "/api/settings", {"max_active_backends": 3})
            assert (await ask(http, "GET", "/api/settings")).body["max_active_backends"] == 3
            for model in ("a", "b", "c"):
                assert (await chat(http, model)).status == 200
            assert len(await loaded(http)) == 2  # the old limit holds


async def test_a_second_change_at_run_time_hangs_the_whole_server(http, emulator):
    ok = {"success": True, "message": "Settings updated successfully"}
    await load(http, "a")
    first = await ask(http, "POST", "/api/settings", {"max_active_backends": 2})
    assert (first.status, first.body) == (200, ok)
    harmless = await ask(http, "POST", "/api/settings", {"lru_eviction_max_retries": 2, "new": 1})
    assert (harmless.status, harmless.body) == (200, ok)
    for hangs in (
        ask(http, "POST", "/api/settings", {"max_active_backends": 3}),
        chat(http, "a"),
        load(http, "b"),
        stop(http, "a"),
    ):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await hangs
    assert (await ask(http, "GET", "/readyz")).status == 200
    assert (await ask(http, "GET", "/backend/monitor?model=a")).body["state"] == 2
    assert await loaded(http) == ["a"]


async def test_with_the_watchdog_changes_are_safe_and_work_at_once():
    with RunningEmulator(MODELS, scale=SCALE, watchdog_idle_s=500.0) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            changed: dict[str, object]
            for limit in (3, 1):
                changed = {"max_active_backends": limit}
                assert (await ask(http, "POST", "/api/settings", changed)).status == 200
            for model in ("a", "b"):
                await load(http, model)
            assert await loaded(http) == ["b"]
            changed = {"watchdog_idle_timeout": "3s", "max_active_backends": -1}
            assert (await ask(http, "POST", "/api/settings", changed)).status == 200
            await emulator.wait_for("unloaded", count=2)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"watchdog_idle_timeout": "soon"}, 'time: invalid duration "soon"'),
        ({"max_active_backends": "2"}, "max_active_backends"),
    ],
)
async def test_bad_settings(http, changes, says):
    answer = await ask(http, "POST", "/api/settings", changes)
    assert (answer.status, answer.body["success"]) == (400, False)
    assert says in answer.body["error"]


# Configurations


async def test_lists_and_capabilities(http):
    body = (await ask(http, "GET", "/v1/models")).body
    assert body["object"] == "list"
    assert [entry["id"] for entry in body["data"]] == [
        "a", "al", "b", "c", "pinned", "no-weights",
    ]  # fmt: skip
    body = (await ask(http, "GET", "/models?filter=pin")).body
    assert [entry["id"] for entry in body["data"]] == ["pinned"]
    body = (await ask(http, "GET", "/v1/models/capabilities")).body
    shown = {entry["id"]: entry for entry in body["data"]}
    assert shown["al"]["capabilities"] is None
    assert shown["a"]["output_modalities"] == ["text"]
    body = (await ask(http, "GET", "/api/models/capabilities")).body
    shown = {entry["id"]: entry for entry in body["data"]}
    assert shown["pinned"]["pinned"]
    assert "FLAG_CHAT" in shown["a"]["capabilities"]
    assert (await ask(http, "GET", "/api/aliases")).body == [{"name": "al", "target": "a"}]


async def test_an_estimate_of_memory(http):
    path = "/api/models/vram-estimate"
    answer = await ask(http, "POST", path, {"model": "a"})
    assert answer.body["vram_bytes"] == 100 * 1024**2
    assert answer.body["context_length"] == 4096
    larger = await ask(http, "POST", path, {"model": "a", "context_size": 8192})
    assert larger.body["vram_bytes"] > answer.body["vram_bytes"]
    nothing = {"message": "no weight files found for estimation"}
    assert (await ask(http, "POST", path, {"model": "no-weights"})).body == nothing
    assert (await ask(http, "POST", path, {"model": "al"})).body == nothing
    unknown = await ask(http, "POST", path, {"model": "nope"})
    assert (unknown.status, unknown.body) == (404, {"error": "model configuration not found"})
    assert (await ask(http, "POST", path, {})).status == 400


async def test_a_patch_stops_the_model_whatever_it_changes_and_keeps_unknown_keys(http):
    await load(http, "a")
    path = "/api/models/config-json/a"
    answer = await ask(http, "PATCH", path, {"scheduling_profile": {"priority_class": "high"}})
    assert answer.status == 200
    assert answer.body["message"] == "Model 'a' updated successfully"
    assert await loaded(http) == []
    raw = (await ask(http, "GET", "/api/models/edit/a")).body
    assert raw["name"] == "a"
    assert "scheduling_profile:\n  priority_class: high\n" in raw["config"]
    assert "scheduling_profile" not in (await ask(http, "GET", path)).body
    assert (await ask(http, "PATCH", path, {"name": "z"})).status == 400
    assert (await ask(http, "PATCH", "/api/models/config-json/nope", {})).status == 404
    assert (await ask(http, "GET", "/api/models/config-json/nope")).status == 404
    assert (await ask(http, "GET", "/api/models/edit/nope")).status == 404


async def test_imports(http):
    async def send(text: str) -> Timed:
        async with http.post("/models/import", data=text.encode()) as raw:
            return Timed(raw.status, raw.headers, await raw.json(), 0.0)

    await load(http, "a")
    made = await send("name: new\nbackend: stub\nemulator: {load_s: 0.1}\nnote: kept\n")
    assert made.body == {
        "success": True,
        "message": "Model configuration created successfully",
        "filename": "new.yaml",
        "pending_cleanup": 0,
    }
    assert (await chat(http, "new")).status == 200  # usable at once
    assert (await send("name: a\nbackend: stub\n")).status == 200
    assert "a" in await loaded(http)  # a loaded model keeps running
    for text, status, says in (
        ("backend: stub", 400, "Name is required"),
        ("name: al2\nalias: nope", 400, 'alias target "nope" does not exist'),
        ("name: al3\nalias: al", 400, "is itself an alias (chains are not allowed)"),
        ("name: ../x", 400, "Model path not trusted: path is outside of trusted root"),
        ("name: a/b", 500, "no such file or directory"),
        ("name: [", 400, "Failed to parse"),
    ):
        answer = await send(text)
        assert (answer.status, answer.body["success"]) == (status, False)
        assert says in answer.body["error"]


async def test_edit_reload_disable_and_delete(http):
    await load(http, "a")
    async with http.post("/models/edit/a", data=b"name: a\nbackend: stub\n") as raw:
        assert (await raw.json())["filename"] == "/models/a.yaml"
    assert await loaded(http) == []
    assert (await ask(http, "POST", "/models/edit/nope", {})).status == 404
    reloaded = await ask(http, "POST", "/models/reload")
    assert reloaded.body["message"] == "Model configurations reloaded successfully"
    await load(http, "b")
    await ask(http, "PUT", "/models/toggle-state/b/disable")
    assert await loaded(http) == []
    assert (await chat(http, "b")).status == 403
    await ask(http, "PUT", "/models/toggle-state/b/enable")
    assert (await chat(http, "b")).status == 200
    assert (await ask(http, "PUT", "/models/toggle-state/b/foo")).status == 400
    assert (await ask(http, "PUT", "/models/toggle-pinned/nope/pin")).status == 404
    job = (await ask(http, "POST", "/models/delete/b")).body
    assert job["status"].endswith(f"/models/jobs/{job['uuid']}")
    assert "jobID" in (await ask(http, "POST", "/api/models/delete/c")).body
    assert (await chat(http, "b")).status == 404
    assert "b" not in [m["id"] for m in (await ask(http, "GET", "/v1/models")).body["data"]]
