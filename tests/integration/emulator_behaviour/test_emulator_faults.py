"""Dead backends and the other faults that can be ordered of the emulator."""

from __future__ import annotations

import asyncio
import json

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator
from tests.integration.emulator_behaviour.timed_calls import (
    MODELS,
    SCALE,
    arm,
    ask,
    chat,
    load,
    loaded,
    sleep,
    stop,
)

pytestmark = pytest.mark.integration


# Dead backends


async def test_a_dead_backend_is_a_ghost(http):
    await load(http, "a")
    await arm(http, kind="backend_crash", model="a")
    assert await loaded(http) == ["a"]
    answer = await chat(http, "a")
    assert answer.status == 500
    assert answer.body["error"]["message"].startswith("rpc error: code = Unavailable desc = ")
    assert "connection refused" in answer.body["error"]["message"]
    watch = await ask(http, "GET", "/backend/monitor?model=a")
    assert watch.status == 500
    assert "error retrieving status info via rpc" in watch.body["error"]["message"]
    assert (await load(http, "a")).body == {"loaded": ["a"], "message": "model loaded"}
    assert (await stop(http, "a")).status == 200  # clears it at once
    assert (await chat(http, "a")).status == 200


async def test_a_backend_that_dies_in_the_middle_of_answers(http, emulator):
    await load(http, "a")
    await arm(http, kind="backend_crash", model="a", after_tokens=2)
    body = {"model": "a", "messages": [], "max_tokens": 8, "stream": True}
    answer = await ask(http, "POST", "/v1/chat/completions", body)
    assert answer.status == 200
    blocks = answer.body.split("\n\n")
    assert blocks[-2] == "data: [DONE]"
    assert json.loads(blocks[-3].removeprefix("data: "))["error"]["message"] == (
        "rpc error: code = Unavailable desc = error reading from server: EOF"
    )
    assert answer.body.count('"content":"word "') == 2
    assert await loaded(http) == ["a"]
    assert [event["cause"] for event in emulator.events("unloaded")] == ["crash"]


async def test_a_backend_that_answers_with_an_error_in_the_middle(http):
    await arm(http, kind="answer_error", model="a", after_tokens=1, message="it failed", times=5)
    answer = await chat(http, "a")
    assert answer.status == 500
    assert answer.body["error"]["message"] == "rpc error: code = Internal desc = it failed"
    answer = await ask(
        http, "POST", "/v1/messages", {"model": "a", "max_tokens": 3, "stream": True}
    )
    assert answer.body.split("\n\n")[-2].startswith("event: error\n")
    answer = await ask(http, "POST", "/api/generate", {"model": "a", "prompt": "x"})
    lines = [json.loads(line) for line in answer.body.splitlines()]
    assert [line["done"] for line in lines] == [False, True]
    assert lines[-1]["done_reason"] == "error"
    answer = await ask(http, "POST", "/v1/responses", {"model": "a", "input": "x", "stream": True})
    types = [line for line in answer.body.split("\n") if line.startswith("event: ")]
    assert types[-2:] == ["event: error", "event: response.failed"]
    answer = await ask(http, "POST", "/v1/embeddings", {"model": "a", "input": "x"})
    assert answer.status == 200  # nothing is generated, so nothing can fail in the middle


# Other faults


async def test_connections_can_be_refused_for_a_while(emulator):
    async with aiohttp.ClientSession(emulator.url) as http:
        await arm(http, kind="refuse_connections", for_s=20)
        await sleep(2.0)
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(http, "GET", "/version")
        await sleep(25.0)
        assert (await ask(http, "GET", "/version")).status == 200


async def test_a_connection_can_be_dropped_in_the_middle(http):
    await load(http, "a")
    await arm(http, kind="disconnect", model="a", times=1, after_tokens=1)
    body = {"model": "a", "messages": [], "max_tokens": 5, "stream": True}
    with pytest.raises(aiohttp.ClientPayloadError):
        await ask(http, "POST", "/v1/chat/completions", body)
    await arm(http, kind="disconnect", model="a", times=1)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await chat(http, "a")
    assert (await chat(http, "a")).status == 200


async def test_answers_can_be_slow_or_plain_errors(http):
    await load(http, "a")
    await arm(http, kind="answer_slow", model="a", extra_s=20)
    body = {"model": "a", "max_tokens": 1}
    assert (await ask(http, "POST", "/v1/chat/completions", body)).elapsed_s > 20.0
    await ask(http, "DELETE", "/emulator/faults")
    assert (await ask(http, "POST", "/v1/chat/completions", body)).elapsed_s < 10.0
    await arm(http, kind="error_500", times=1)
    answer = await chat(http, "a")
    assert (answer.status, answer.body["error"]["message"]) == (500, "emulated failure")
    assert (await chat(http, "a")).status == 200


async def test_stops_can_lie_hang_or_fail():
    with RunningEmulator(MODELS, scale=SCALE, capacity_mb=250) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            await load(http, "a")
            await arm(http, kind="unload_lies", model="a")
            assert (await stop(http, "a")).status == 200
            resources = (await ask(http, "GET", "/api/resources")).body
            assert resources["aggregate"]["used_memory"] == 100 * 1024**2
            await ask(http, "DELETE", "/emulator/faults")
            assert emulator.get("/emulator/state")["others_bytes"] == 0
            await arm(http, kind="unload_500", model="b", times=1)
            await load(http, "b")
            assert (await stop(http, "b")).status == 500
            await arm(http, kind="unload_hang", model="b")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(40.0 / SCALE):
                    await stop(http, "b")


async def test_loads_can_be_slow_or_hang_and_another_program_can_take_the_memory():
    with RunningEmulator(MODELS, scale=SCALE, capacity_mb=250) as emulator:
        async with aiohttp.ClientSession(emulator.url) as http:
            await arm(http, kind="load_slow", model="a", factor=2.0, extra_s=4.0)
            assert (await load(http, "a")).elapsed_s > 13.5
            await arm(http, kind="memory", bytes=100 * 1024**2)
            answer = await load(http, "b")
            assert "out of memory" in answer.body["message"]
            await ask(http, "DELETE", "/emulator/faults")
            await arm(http, kind="load_hang", model="c")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(20.0 / SCALE):
                    await load(http, "c")
            await emulator.wait_for("load_cancelled", model="c")


async def test_faults_come_and_go_at_their_times(http):
    await arm(http, kind="answer_slow", model="a", extra_s=1, at_s=10, for_s=20)
    assert (await ask(http, "GET", "/emulator/faults")).body == {"faults": []}
    await sleep(15.0)
    listed = (await ask(http, "GET", "/emulator/faults")).body["faults"]
    assert [fault["kind"] for fault in listed] == ["answer_slow"]
    await sleep(20.0)
    assert (await ask(http, "GET", "/emulator/faults")).body == {"faults": []}


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ({"kind": "nonsense"}, "must be one of load_fail"),
        ({"kind": "load_fail"}, "needs a model"),
        ({"kind": "load_fail", "model": "a", "times": -1}, "must be a number, 0 or more"),
        ({"kind": "load_fail", "model": "a", "bytes": 1}, "it takes at_s, for_s, kind"),
        ({"kind": "refuse_connections"}, "needs for_s"),
        ([1], "must be an object"),
    ],
)
async def test_a_fault_that_makes_no_sense_is_refused(http, fault, says):
    answer = await ask(http, "POST", "/emulator/faults", fault)
    assert answer.status == 400
    assert says in answer.body["error"]


async def test_faults_are_bounded(http):
    many = [{"kind": "error_500", "model": "nobody"}] * 1001
    answer = await ask(http, "POST", "/emulator/faults", many)
    assert (answer.status, "at most 1000" in answer.body["error"]) == (400, True)
