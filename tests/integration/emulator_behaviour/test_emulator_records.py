"""What the emulator counts and records: metrics, resources, its event log, its times."""

from __future__ import annotations

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_behaviour.timed_calls import MODELS, SCALE, ask, chat, load

pytestmark = pytest.mark.integration


async def test_metrics_and_usage(http):
    await chat(http, "a")
    counted = 'path="/v1/chat/completions",le="+Inf"} 1\n'
    text = ""
    for _ in range(100):  # a call is counted right after its last byte
        text = (await ask(http, "GET", "/metrics")).body
        if counted in text:
            break
    assert counted in text
    assert 'localai_billed_requests_total{served_model="a",user="local"} 1\n' in text
    assert 'localai_tokens_total{kind="completion",served_model="a",user="local"} 2\n' in text
    totals = (await ask(http, "GET", "/api/usage")).body["totals"]
    assert (totals["request_count"], totals["completion_tokens"]) == (1, 2)
    for path in ("/api/operations", "/api/p2p", "/api/traces", "/api/backend-traces"):
        assert (await ask(http, "GET", path)).status == 200


async def test_resources_of_a_machine_without_a_gpu(http):
    body = (await ask(http, "GET", "/api/resources")).body
    assert (body["type"], body["gpus"], body["aggregate"]["gpu_count"]) == ("ram", None, 0)
    assert body["ram"]["total"] == body["aggregate"]["total_memory"]


async def test_the_event_log_tells_the_whole_story(http, emulator):
    headers = {"X-Request-ID": "story"}
    body = {"model": "al", "messages": [], "max_tokens": 1}
    await ask(http, "POST", "/v1/chat/completions", body, **headers)
    log = emulator.get("/emulator/events?after=0")
    assert [event["kind"] for event in log["events"]] == [
        "request_received", "load_started", "load_ended", "request_started", "request_ended",
    ]  # fmt: skip
    assert {event["model"] for event in log["events"]} == {"a"}
    assert {event["request_id"] for event in log["events"]} == {"story"}
    assert [event["seq"] for event in log["events"]] == [1, 2, 3, 4, 5]
    assert [event["cold"] for event in log["events"] if "cold" in event] == [True, True]
    times = {event["kind"]: event["at_s"] for event in log["events"]}
    assert times["load_ended"] - times["load_started"] == pytest.approx(6.0, abs=1e-3)
    assert log["next"] == 5
    assert emulator.get("/emulator/events?after=4")["events"][0]["kind"] == "request_ended"
    assert emulator.get("/emulator/events?after=5") == {"events": [], "next": 5, "dropped": 0}


async def test_a_request_can_say_how_long_it_takes(http, emulator):
    await load(http, "a")
    for stream in (False, True):
        answer = await chat(http, "a", service_s=12.5, stream=stream)
        assert answer.status == 200
    spans = [
        end["at_s"] - start["at_s"]
        for start, end in zip(
            emulator.events("request_started"), emulator.events("request_ended"), strict=True
        )
    ]
    assert spans == pytest.approx([12.5, 12.5], abs=1.0)
    assert min(spans) >= 12.5 - 0.1  # timers of the loop are a millisecond coarse


async def test_exact_load_times():
    with RunningEmulator(MODELS, scale=SCALE, exact_load_times=True) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            await load(http, "a")
    started, ended = emulator.events("load_started", "load_ended")
    assert ended["at_s"] - started["at_s"] == pytest.approx(4.0, abs=1e-3)
