"""Loads of the emulator over HTTP: who waits, who leaves, and what cools down."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_behaviour.timed_calls import (
    SCALE,
    arm,
    ask,
    chat,
    load,
    loaded,
    sleep,
)

pytestmark = pytest.mark.integration


# Loads


async def test_a_load_blocks_until_the_model_is_resident(http):
    assert await loaded(http) == []
    answer = await load(http, "a")
    assert (answer.status, answer.body) == (200, {"loaded": ["a"], "message": "model loaded"})
    assert 6.0 <= answer.elapsed_s < 9.0  # two seconds of start come on top of the weights
    assert await loaded(http) == ["a"]
    again = await load(http, "a")
    assert again.body == {"loaded": ["a"], "message": "model loaded"}
    assert again.elapsed_s < 2.0


async def test_load_orders_that_are_refused(http):
    answer = await ask(http, "POST", "/backend/load", {})
    assert (answer.status, answer.body) == (400, {"loaded": None, "message": "model is required"})
    async with http.post("/backend/load", data=b'{"model":"a"}') as raw:
        assert raw.status == 415
    async with http.post(
        "/backend/load", data=b"{", headers={"Content-Type": "application/json"}
    ) as raw:
        assert raw.status == 400
        assert (await raw.json())["error"]["message"] == (
            "code=400, message=unexpected EOF, internal=unexpected EOF"
        )


@pytest.mark.parametrize("name", ["al", "nope"])
async def test_aliases_and_unknown_names_are_tried_and_cool_down(http, name):
    first = await load(http, name)
    assert (first.status, first.body["loaded"]) == (500, None)
    assert first.body["message"].startswith("failed to load model: could not load model")
    assert first.elapsed_s >= 2.0
    again = await load(http, name)
    assert again.status == 500
    assert "Retry-After" not in again.headers
    assert "is in cooldown after a recent failure; retry after" in again.body["message"]
    assert again.elapsed_s < 2.0


async def test_one_that_loads_is_in_neither_list_nor_monitor(http, emulator):
    loading = asyncio.create_task(load(http, "a"))
    await emulator.wait_for("load_started")
    assert await loaded(http) == []
    answer = await ask(http, "GET", "/backend/monitor?model=a")
    assert answer.status == 500
    assert answer.body["error"]["message"] == "backend a is not currently loaded"
    status = await ask(http, "GET", "/api/models/a/load-status")
    assert (status.status, status.body["error"]["type"]) == (404, "not_found_error")
    assert (await loading).status == 200


async def test_one_load_for_many_and_side_by_side_for_different_models(http, emulator):
    answers = await asyncio.gather(
        chat(http, "a"), chat(http, "a"), load(http, "a"), chat(http, "b")
    )
    assert [answer.status for answer in answers] == [200] * 4
    assert max(answer.elapsed_s for answer in answers) < 11.0
    assert len(emulator.events("load_started")) == 2


async def test_a_cold_stream_sends_nothing_before_its_first_token(http, emulator):
    body = {"model": "a", "messages": [], "max_tokens": 1, "stream": True}
    asking = asyncio.create_task(http.post("/v1/chat/completions", json=body))
    await emulator.wait_for("load_started")
    await sleep(3.0)
    assert not asking.done()  # not even the status line
    async with await asking as answer:
        assert answer.status == 200
        await answer.read()


async def test_an_anthropic_stream_speaks_before_the_load(http, emulator):
    body = {"model": "a", "messages": [], "max_tokens": 1, "stream": True}
    async with http.post("/v1/messages", json=body) as answer:
        first = await answer.content.readany()
        assert b"event: message_start" in first
        assert not emulator.events("load_ended")
        rest = await answer.read()
    assert b"event: ping" in first + rest  # each three seconds until the first token
    assert rest.endswith(b'data: {"type":"message_stop"}\n\n')


# Callers that leave


async def test_a_caller_that_leaves_kills_the_load_and_the_model_cools_down(http, emulator):
    asking = asyncio.create_task(chat(http, "a"))
    await emulator.wait_for("load_started")
    await sleep(3.0)
    asking.cancel()
    await emulator.wait_for("load_cancelled")
    answer = await chat(http, "a")
    assert answer.status == 503
    assert 1 <= int(answer.headers["Retry-After"]) <= 10
    assert answer.body["error"]["message"].startswith(
        'model "a" load is in cooldown after a recent failure; retry after '
    )
    assert emulator.get("/emulator/state")["used_bytes"] == 0


async def test_ten_wait_nine_leave_localai_alone_kills_the_load():
    """The same through the gateway is one load; here it is several, and the tenth waits long."""
    model = {"name": "big", "footprint_mb": 100, "load_s": 60.0}
    with RunningEmulator([model], scale=SCALE) as emulator:
        async with aiohttp.ClientSession(
            emulator.url, connector=aiohttp.TCPConnector(limit=0)
        ) as http:
            callers = []
            body = {"model": "big", "messages": [], "max_tokens": 1}
            for number in range(10):
                headers = {"X-Request-ID": f"caller-{number}"}
                asking = ask(http, "POST", "/v1/chat/completions", body, **headers)
                callers.append(asyncio.create_task(asking))
                await emulator.wait_for("request_received", count=number + 1)
            await sleep(4.0)
            for caller in callers[:9]:
                caller.cancel()
            await emulator.wait_for("caller_left", count=9)
            late = await chat(http, "big")
            assert late.status == 503  # the load counts as failed
            tenth = await callers[9]
            assert tenth.status == 200
            # 62 s would have done; each who left first cost the start of a process.
            assert tenth.elapsed_s > 4.0 + 8 * 2.0 + 62.0 - 1.0
    assert len(emulator.events("load_started")) == 10
    assert len(emulator.events("load_cancelled")) == 9
    assert [event["request_id"] for event in emulator.events("load_ended")] == ["caller-9"]


@pytest.mark.parametrize("stream", [False, True])
async def test_leaving_in_the_middle_of_an_answer_frees_the_slot(http, emulator, stream):
    await load(http, "c")  # one slot
    first = asyncio.create_task(chat(http, "c", service_s=1000, stream=stream))
    await emulator.wait_for("request_started")
    second = asyncio.create_task(chat(http, "c"))
    await emulator.wait_for("request_received", count=2)
    assert emulator.get("/emulator/state")["models"]["c"]["waiting"] == 1
    first.cancel()
    assert (await second).status == 200
    assert len(emulator.events("caller_left")) == 1


# Cool-down in every dialect


async def test_a_model_in_cool_down_is_refused_in_every_dialect(http):
    await arm(http, kind="cooldown", model="a", for_s=80)
    text = 'model "a" load is in cooldown after a recent failure; retry after 1m'
    for path, body in (
        ("/v1/chat/completions", {"model": "a"}),
        ("/v1/completions", {"model": "a", "prompt": "x"}),
        ("/v1/embeddings", {"model": "a", "input": "x"}),
    ):
        answer = await ask(http, "POST", path, body)
        assert answer.status == 503
        assert 60 < int(answer.headers["Retry-After"]) <= 80
        assert answer.body["error"]["code"] == 503
        assert answer.body["error"]["message"].startswith(text)
    answer = await ask(http, "POST", "/v1/chat/completions", {"model": "a", "stream": True})
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/event-stream")
    event, done = answer.body.split("\n\n")[:2]
    error = json.loads(event.removeprefix("data: "))["error"]
    assert (error["code"], error["type"]) == ("server_error", "server_error")
    assert error["message"].startswith(text)
    assert done == "data: [DONE]"
    answer = await ask(http, "POST", "/v1/messages", {"model": "a", "max_tokens": 1})
    assert (answer.status, answer.body["type"]) == (500, "error")
    assert answer.body["error"]["message"].startswith(f"model inference failed: {text}")
    answer = await ask(http, "POST", "/v1/responses", {"model": "a", "input": "x"})
    assert (answer.status, answer.body["error"]["type"]) == (500, "model_error")
    answer = await ask(http, "POST", "/api/chat", {"model": "a", "messages": [1], "stream": False})
    assert answer.status == 500
    assert answer.body["error"].startswith(f"model inference failed: {text}")
    answer = await ask(http, "POST", "/api/chat", {"model": "a", "messages": [1]})
    assert (answer.status, json.loads(answer.body)["done_reason"]) == (200, "error")
    answer = await load(http, "a")
    assert (answer.status, answer.body["loaded"]) == (500, None)
    assert answer.body["message"].startswith(f"failed to load model: {text}")
    answer = await ask(
        http, "POST", "/v1/messages", {"model": "a", "max_tokens": 1, "stream": True}
    )
    assert answer.body.split("\n\n")[-2].startswith("event: error\n")
    assert "message_stop" not in answer.body
    answer = await ask(http, "POST", "/v1/responses", {"model": "a", "input": "x", "stream": True})
    types = [line for line in answer.body.split("\n") if line.startswith("event: ")]
    assert (types[0], types[-2:]) == (
        "event: response.created",
        ["event: error", "event: response.failed"],
    )


async def test_a_failing_load_says_so_and_then_cools_down_longer_each_time(http, emulator):
    await arm(http, kind="load_fail", model="a", times=2, message="CUDA out of memory")
    answer = await chat(http, "a")
    assert answer.status == 500
    assert answer.body["error"]["message"] == (
        "failed to load model with internal loader: could not load model (no success): "
        "CUDA out of memory"
    )
    assert (await chat(http, "a")).status == 503
    await sleep(10.5)
    assert (await load(http, "a")).status == 500
    cooldown_s = emulator.get("/emulator/state")["models"]["a"]["cooldown_left_s"]
    assert 15.0 < cooldown_s <= 20.0
    await sleep(20.5)
    assert (await load(http, "a")).status == 200
