"""What LocalAI does by itself to models that work or take room, and what it tells of calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from contracts.world import Residency
from tests.emulator_server import RunningEmulator
from tests.gateway_server import RunningGateway

pytestmark = pytest.mark.integration

HI = [{"role": "user", "content": "hi"}]
MODELS = tuple(
    {"name": name, "load_s": 0.1, "footprint_mb": 400, "answer_tokens": 2} for name in "abc"
)
CHAT = "/v1/chat/completions"


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


async def test_the_busy_watchdog_ends_what_works_too_long(http):
    slow = {"X-Emulator-Service-S": "60"}
    with (
        RunningEmulator(MODELS, watchdog_busy_s=5.0, exact_load_times=True) as emulator,
        RunningGateway(emulator.url) as gateway,
    ):
        gateway.routes(dict.fromkeys("abc", Residency.HOT))
        for url in (emulator.url, gateway.url):
            body = {"model": "a", "messages": HI}
            async with http.post(url + CHAT, json=body, headers=slow) as answer:
                assert answer.status == 500
                assert "error reading from server: EOF" in await answer.text()
            async with http.post(
                url + CHAT,
                json=body | {"stream": True},
                headers=slow | {"X-Emulator-Service-S": "9"},
            ) as answer:
                assert answer.status == 200
                text = await answer.text()
                assert "error reading from server: EOF" in text
                assert text.endswith("data: [DONE]\n\n")
            async with http.get(url + "/system") as answer:
                assert (await answer.json())["loaded_models"] == []
            async with http.post(url + CHAT, json=body) as answer:
                assert answer.status == 200, "the next request loads it anew"


async def test_the_reclaimer_stops_what_was_used_longest_ago(http):
    with RunningEmulator(
        MODELS, capacity_mb=1200, reclaim_over=0.9, exact_load_times=True
    ) as emulator:
        for name in "abc":
            async with http.post(
                emulator.url + CHAT, json={"model": name, "messages": HI}
            ) as answer:
                assert answer.status == 200
        await emulator.wait_for("unloaded")
        assert emulator.events("unloaded")[0]["model"] == "a"
        await asyncio.sleep(0.1)
        assert len(emulator.events("unloaded")) == 1, "it is under the threshold again"
        async with http.get(emulator.url + "/api/resources") as answer:
            assert (await answer.json())["reclaimer_enabled"] is True


async def test_traces_are_kept_once_they_are_switched_on(http):
    with RunningEmulator(MODELS, exact_load_times=True) as emulator:
        url = emulator.url
        async with http.get(url + "/api/backend-traces") as answer:
            assert (answer.headers["X-Total-Count"], await answer.json()) == ("0", [])
        async with http.post(url + "/api/settings", json={"enable_tracing": True}) as answer:
            assert answer.status == 200
        for model in ("a", "b", "none"):
            async with http.post(url + CHAT, json={"model": model, "messages": HI}):
                pass
        async with http.get(url + "/api/traces?limit=2") as answer:
            assert answer.headers["X-Total-Count"] >= "3"
            newest, before = await answer.json()
        assert (newest["request"]["path"], newest["response"]["status"]) == (CHAT, 404)
        assert before["response"]["status"] == 200
        assert before["duration"] > 0
        async with http.get(url + "/api/backend-traces") as answer:
            traces = await answer.json()
        loads = [trace for trace in traces if trace["type"] == "model_load"]
        assert [trace["model_name"] for trace in loads] == ["b", "a"]
        assert all(trace["duration"] > 0.09e9 for trace in loads)
        assert [trace["model_name"] for trace in traces if trace["type"] == "llm"] == ["b", "a"]
        async with http.get(url + "/api/traces/summary") as answer:
            told = await answer.json()
        assert (told["total"] >= 3, told["errors"], len(told["buckets"])) == (True, 0, 12)
        assert told["buckets"][-1]["count"] == told["total"]
