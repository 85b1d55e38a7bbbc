"""What makes LocalAI hard to live with, seen over HTTP: each `beware` of its management API."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from tests.emulator_server import RunningEmulator

pytestmark = pytest.mark.integration

SCALE = 50.0
MODELS = [
    {"name": "a", "footprint_mb": 100, "load_s": 4.0, "parallel": 4, "aliases": ["al"]},
    {"name": "b", "footprint_mb": 100, "load_s": 4.0, "parallel": 4},
    {"name": "c", "footprint_mb": 100, "load_s": 4.0, "parallel": 1},
    {"name": "pinned", "footprint_mb": 100, "load_s": 1.0, "pinned": True},
    {"name": "no-weights", "footprint_mb": 100, "load_s": 1.0, "weights": False},
]


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with RunningEmulator(MODELS, scale=SCALE) as running:
        yield running


@pytest.fixture
async def http(emulator: RunningEmulator) -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(emulator.url) as session:
        yield session


class Timed:
    """An answer with the seconds of the emulator's clock that it took."""

    def __init__(self, status: int, headers: Any, body: Any, elapsed_s: float) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.elapsed_s = elapsed_s


async def ask(
    http: aiohttp.ClientSession, method: str, path: str, body: Any = None, **headers: str
) -> Timed:
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with http.request(method, path, json=body, headers=headers) as answer:
        text = await answer.text()
        parsed = json.loads(text) if text and answer.content_type == "application/json" else text
        return Timed(answer.status, answer.headers, parsed, (loop.time() - started) * SCALE)


async def chat(http: aiohttp.ClientSession, model: str, **extra: Any) -> Timed:
    headers = {"X-Emulator-Service-S": str(extra.pop("service_s", 0.1))}
    body = {"model": model, "messages": [], "max_tokens": 2, **extra}
    return await ask(http, "POST", "/v1/chat/completions", body, **headers)


async def load(http: aiohttp.ClientSession, model: str) -> Timed:
    return await ask(http, "POST", "/backend/load", {"model": model})


async def stop(http: aiohttp.ClientSession, model: str) -> Timed:
    return await ask(http, "POST", "/backend/shutdown", {"model": model})


async def loaded(http: aiohttp.ClientSession) -> list[str]:
    body = (await ask(http, "GET", "/system")).body
    assert body["backends"] == ["emulated"]
    assert {entry["backend"] for entry in body["loaded_models"]} <= {"emulated"}
    return [entry["id"] for entry in body["loaded_models"]]


async def arm(http: aiohttp.ClientSession, **fault: Any) -> None:
    assert (await ask(http, "POST", "/emulator/faults", fault)).status == 200


async def sleep(duration_s: float) -> None:
    await asyncio.sleep(duration_s / SCALE)


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


# Metrics and the emulator's own paths


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
