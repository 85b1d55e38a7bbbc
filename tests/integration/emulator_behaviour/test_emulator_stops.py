"""What makes the emulator stop a model: an order, the limit, the idle watchdog."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_behaviour.timed_calls import (
    MODELS,
    SCALE,
    ask,
    chat,
    load,
    loaded,
    sleep,
    stop,
)

pytestmark = pytest.mark.integration


# Stops and monitor


async def test_a_stop_of_an_idle_model(http, emulator):
    await load(http, "a")
    answer = await stop(http, "a")
    assert (answer.status, answer.body) == (200, {"message": "model stopped"})
    assert await loaded(http) == []
    assert [event["cause"] for event in emulator.events("unloaded")] == ["shutdown"]


@pytest.mark.parametrize("name", ["a", "al", "nope"])
async def test_a_stop_of_what_is_not_loaded_is_a_404_like_any_unknown_path(http, name):
    answer = await stop(http, name)
    assert (answer.status, answer.body["error"]["message"]) == (404, "Resource not found")


async def test_a_stop_without_a_name(http):
    answer = await ask(http, "POST", "/backend/shutdown", {})
    assert answer.status == 400
    assert answer.body["error"]["message"] == "code=400, message=model is required"
    answer = await ask(http, "GET", "/backend/monitor")
    assert answer.body["error"]["message"] == "code=400, message=model query parameter is required"


async def test_a_stop_waits_for_a_busy_model_and_new_requests_hang(http, emulator):
    await load(http, "a")
    serving = asyncio.create_task(chat(http, "a", service_s=15))
    await emulator.wait_for("request_started")
    stopping = asyncio.create_task(stop(http, "a"))
    await sleep(2.0)
    late = asyncio.create_task(chat(http, "a"))
    watching = asyncio.create_task(ask(http, "GET", "/backend/monitor?model=a"))
    other = asyncio.create_task(load(http, "b"))
    assert (await other).status == 200
    assert not late.done()
    assert not watching.done()
    assert (await serving).status == 200
    stopped = await stopping
    assert stopped.status == 200
    assert stopped.elapsed_s > 10.0
    assert (await watching).status == 500
    assert (await late).status == 200  # it loaded the model anew
    assert len(emulator.events("load_started", model="a")) == 2


async def test_a_stop_gives_up_on_a_busy_model_after_thirty_seconds(http, emulator):
    await load(http, "a")
    serving = asyncio.create_task(chat(http, "a", service_s=40))
    await emulator.wait_for("request_started")
    watch = await ask(http, "GET", "/backend/monitor?model=a")
    memory = {"total": 100 * 1024**2, "breakdown": {"weights": 100 * 1024**2}}
    assert watch.body == {"state": 1, "memory": memory}
    answer = await stop(http, "a")
    assert answer.status == 500
    assert answer.body["error"]["message"] == ("model is still busy: a: context deadline exceeded")
    assert 29.0 < answer.elapsed_s < 36.0
    await serving
    watch = await ask(http, "GET", "/backend/monitor?model=a")
    assert watch.body["state"] == 2


async def test_a_stop_goes_on_when_its_caller_leaves(http, emulator):
    await load(http, "a")
    serving = asyncio.create_task(chat(http, "a", service_s=15))
    await emulator.wait_for("request_started")
    stopping = asyncio.create_task(stop(http, "a"))
    await sleep(3.0)
    stopping.cancel()
    await serving
    await emulator.wait_for("unloaded")
    assert await loaded(http) == []


async def test_monitor_takes_the_name_from_a_body_too(http):
    await load(http, "a")
    answer = await ask(http, "GET", "/backend/monitor", {"model": "a"})
    assert answer.body["state"] == 2


# Limits


async def test_the_limit_evicts_the_least_recently_used_and_waits_for_busy_ones():
    with RunningEmulator(MODELS, scale=SCALE, model_limit=2) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            for model in ("a", "b", "a", "c"):
                assert (await chat(http, model)).status == 200
            assert sorted(await loaded(http)) == ["a", "c"]
            causes = [(event["model"], event["cause"]) for event in emulator.events("unloaded")]
            assert causes == [("b", "limit")]
            busy = [
                asyncio.create_task(chat(http, "a", service_s=20)),  # under the 30 tries
                asyncio.create_task(chat(http, "c", service_s=60)),
            ]
            await emulator.wait_for("request_started", count=6)
            assert (await chat(http, "b")).status == 200
            assert not busy[1].done()
            await asyncio.gather(*busy)
            assert sorted(await loaded(http)) == ["b", "c"]
    story = [(event["kind"], event["model"]) for event in emulator.events()]
    asked = len(story) - 1 - story[::-1].index(("request_received", "b"))
    assert [step for step in story[asked:] if step[0] != "request_started"][:4] == [
        ("request_received", "b"),
        ("request_ended", "a"),  # it was busy until here
        ("unloaded", "a"),
        ("load_started", "b"),
    ]


async def test_pinned_models_stay():
    with RunningEmulator(MODELS, scale=SCALE, model_limit=1) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            await load(http, "pinned")
            await load(http, "a")
            assert sorted(await loaded(http)) == ["a", "pinned"]
            answer = await ask(http, "PUT", "/models/toggle-pinned/pinned/unpin")
            assert answer.body["message"] == "Model 'pinned' has been unpinned successfully."
            await load(http, "b")
            assert await loaded(http) == ["b"]


async def test_the_idle_watchdog():
    with RunningEmulator(MODELS, scale=SCALE, watchdog_idle_s=8.0) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            await load(http, "a")
            await load(http, "pinned")
            await emulator.wait_for("unloaded")
            assert [event["cause"] for event in emulator.events("unloaded")] == ["idle"]
            assert await loaded(http) == ["pinned"]
            settings = (await ask(http, "GET", "/api/settings")).body
            assert (settings["watchdog_idle_enabled"], settings["watchdog_idle_timeout"]) == (
                True,
                "8s",
            )
