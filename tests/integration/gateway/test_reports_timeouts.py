"""Field reports on time limits, breakers and streams that break off, against one LocalAI."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import dataclass
from typing import Any

import aiohttp
import pytest

from api.gateway.breaker import FAILURES, MODEL_RULE
from contracts.config import TimeoutConfig
from contracts.errors import Transient
from contracts.events import Origin, RequestCompleted, RequestFailed
from contracts.ids import ModelId

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"
A, B, COLD = ModelId("a"), ModelId("b"), ModelId("cold")


def piece(**delta: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() + b"\n\n"


LAST = (
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n' + b"data: [DONE]\n\n"
)


@dataclass
class Got:
    status: int
    headers: Any
    body: bytes
    arrived_s: list[tuple[float, bytes]]
    """When each piece was there, in the gateway's seconds."""


@pytest.fixture
async def ask():
    """Asks in a task of its own; every piece of the answer is noted with its time."""
    async with aiohttp.ClientSession() as session:

        def begin(gateway, model: str = "a", path: str = CHAT, **body: object):
            async def run() -> Got:
                async with session.post(
                    gateway.url + path, json={"model": model, **body}
                ) as answer:
                    pieces = [
                        (gateway.clock.now_s(), data) async for data in answer.content.iter_any()
                    ]
                    whole = b"".join(data for _, data in pieces)
                    return Got(answer.status, answer.headers, whole, pieces)

            return asyncio.create_task(run())

        yield begin


def by_model(kit, **scripts):
    """LocalAI answers by the model that is asked for."""

    async def script(seen, writer):
        await scripts[json.loads(seen.body)["model"]](seen, writer)

    kit.localai.script = script


async def works(seen, writer):
    body = b'{"choices":[{"message":{"content":"x"}}]}'
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    writer.write(head % len(body) + body)


async def hangs(seen, writer):
    await asyncio.Event().wait()


def asked_for(kit, model: str) -> int:
    return sum(json.loads(seen.body).get("model") == model for seen in kit.localai.seen)


@pytest.mark.case("P023")
async def test_a_poll_of_a_broken_model_is_no_storm(kit, ask):
    gateway = await kit.start()

    async def breaks(seen, writer):
        await gateway.clock.sleep(2.0)
        writer.write(kit.reply(b'{"error":{"message":"no"}}', status="500 Internal Server Error"))

    by_model(kit, a=breaks, b=works)
    polls, others = [], []
    for second in range(60):
        polls.append(ask(gateway))
        await kit.eventually(
            lambda second=second: gateway.service.in_flight() or polls[second].done()
        )
        if polls[second].done():
            got = await polls[second]
            assert (got.status, json.loads(got.body)["error"]["type"]) == (503, "no_backend")
            assert 1 <= int(got.headers["Retry-After"]) <= MODEL_RULE.longest_open_s
        others.append(await ask(gateway, "b"))
        await gateway.advance(1.0)
    assert asked_for(kit, "a") <= 4
    assert {got.status for got in others} == {200}
    assert asked_for(kit, "b") == 60, "the other model is as fast as ever"
    by_model(kit, a=works, b=works)
    # mended: it works within one back-off
    statuses = []
    for _ in range(int(2 * MODEL_RULE.first_open_s)):
        await gateway.advance(1.0)
        statuses.append((await ask(gateway)).status)
    assert statuses[-1] == 200
    for poll in polls:
        await poll


@pytest.mark.case("P023")
async def test_a_poll_of_a_model_that_cannot_be_loaded_is_no_storm(kit, ask):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold), kit.route("hot", kit.hot)))
    gateway.server.load_s[COLD] = 2.0
    failures = [Transient("no", retry_after_s=10.0 * 2**number) for number in range(9)]
    gateway.server.fail_loads(COLD, *failures)
    polls = []
    for _ in range(60):
        polls.append(ask(gateway, "cold"))
        assert (await ask(gateway, "hot")).status == 200
        await gateway.advance(1.0)
    statuses = set()
    for poll in polls:
        got = await poll
        statuses.add((got.status, json.loads(got.body)["error"]["type"]))
        assert int(got.headers["Retry-After"]) >= 1
    assert statuses == {(503, "model_cooldown")}
    started = [call for call in gateway.server.calls if call.what == "load_started"]
    assert len(started) <= 4


@pytest.mark.case("P024")
@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_is_never_answered_ends_in_its_models_time(kit, ask, stream):
    gateway = await kit.start(timeouts={A: TimeoutConfig(first_byte_s=5.0)}, slots={A: 1})
    by_model(kit, a=hangs, b=works)
    asking = ask(gateway, stream=stream)
    await kit.eventually(gateway.service.in_flight)
    await gateway.advance(5.5)
    got = await asking
    assert (got.status, json.loads(got.body)["error"]["type"]) == (504, "upstream_timeout")
    assert not gateway.service.in_flight(), "its slot is free"
    assert (await ask(gateway, "b")).status == 200
    await asyncio.wait_for(kit.localai.seen[0].left.wait(), 2.0)


@pytest.mark.case("P024")
async def test_a_load_that_takes_too_long_is_an_event_where_comments_went_out(kit, ask):
    gateway = await kit.start(min_load_budget_s=20.0)
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    gateway.server.load_s[COLD] = 100.0
    asking = ask(gateway, "cold", stream=True)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(21.0)
    got = await asking
    assert got.status == 200
    comments, event, done, _ = got.body.split(b"\n\n")
    assert comments.startswith(b": headstart ")
    assert json.loads(event.removeprefix(b"data: "))["error"]["type"] == "model_loading"
    assert done == b"data: [DONE]"
    await gateway.advance(82.0)  # the load goes on: whoever comes next has it


@pytest.mark.case("P046")
async def test_a_long_load_is_waited_for(kit, ask):
    gateway = await kit.start(min_load_budget_s=600.0)
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    gateway.server.load_s[COLD] = 150.0
    by_model(kit, cold=works)
    asking = ask(gateway, "cold")
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(153.0)
    got = await asking
    assert got.status == 200
    assert 150.0 <= got.arrived_s[0][0] - 1_000.0 <= 153.0
    assert [call.what for call in gateway.server.calls] == ["load_started", "loaded"]
    # once measured, the same is waited for without being told so
    assert gateway.service.room._book.load_budget_s(COLD, 60.0) >= 300.0


@pytest.mark.case("P047")
async def test_a_refusal_for_now_passes_whole_and_opens_nothing(kit, ask):
    gateway = await kit.start()
    body = b'{"error":{"code":"model_loading","message":"x"},"loading":{"progress":0.5}}'
    refusals = 2 * FAILURES

    async def script(seen, writer):
        if len(kit.localai.seen) <= refusals:
            headers = ("Content-Type: application/json", "Retry-After: 3")
            writer.write(kit.reply(body, status="503 Service Unavailable", headers=headers))
        else:
            await works(seen, writer)

    kit.localai.script = script
    for _ in range(refusals):
        got = await ask(gateway)
        assert (got.status, got.headers["Retry-After"], got.body) == (503, "3", body)
    assert (await ask(gateway)).status == 200


@pytest.mark.case("P049")
async def test_a_stream_that_waits_for_a_load_is_kept_alive(kit, ask):
    gateway = await kit.start(min_load_budget_s=600.0)
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    gateway.server.load_s[COLD] = 95.0

    async def streams(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(piece(content="x") + LAST) + b"0\r\n\r\n")

    by_model(kit, cold=streams)
    asking = ask(gateway, "cold", stream=True)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(98.0)
    got = await asking
    times_s = [1_000.0, *(at_s for at_s, _ in got.arrived_s)]
    gaps_s = [after - before for before, after in itertools.pairwise(times_s)]
    assert max(gaps_s) <= 16.0
    *comments, _ = (data for _, data in got.arrived_s)
    assert all(data.startswith(b": ") for data in comments)
    assert got.body.endswith(piece(content="x") + LAST)


@pytest.mark.case("P049")
async def test_nothing_ends_a_slow_answer_before_its_limit(kit, ask):
    gateway = await kit.start()

    async def slow(seen, writer):
        await gateway.clock.sleep(595.0)
        await works(seen, writer)

    by_model(kit, a=slow)
    asking = ask(gateway)
    await kit.eventually(gateway.service.in_flight)
    await gateway.advance(594.0)
    assert not asking.done(), "no early byte, and no hidden limit"
    await gateway.advance(2.0)
    got = await asking
    assert got.status == 200
    assert len(got.arrived_s) == 1


def silent_phase(kit, gateway, pieces, *, gap_s: float):
    """A first piece, then the others with ``gap_s`` before each."""

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(pieces[0]))
        await writer.drain()
        for data in pieces[1:]:
            await gateway.clock.sleep(gap_s)
            writer.write(kit.chunk(data))
            await writer.drain()
        writer.write(kit.chunk(LAST) + b"0\r\n\r\n")

    kit.localai.script = script


PING = b'event: ping\ndata: {"type":"ping"}\n\n'
START = b'event: message_start\ndata: {"type":"message_start","message":{"model":"a"}}\n\n'
STOP = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'


@pytest.mark.case("P153")
@pytest.mark.parametrize(
    ("path", "pieces", "gap_s"),
    [
        (CHAT, [piece(content="one"), piece(content="x")], 120.0),
        (CHAT, [piece(reasoning="hm")] * 13, 10.0),
        ("/v1/messages", [START, *[PING] * 12, STOP], 10.0),
    ],
)
async def test_a_model_that_thinks_is_not_cut_off(kit, ask, path, pieces, gap_s):
    gateway = await kit.start()
    silent_phase(kit, gateway, pieces, gap_s=gap_s)
    asking = ask(gateway, path=path, stream=True)
    for _ in range(135):
        await gateway.advance(1.0)
        if not asking.done():
            assert gateway.service.in_flight() in ({A: 1}, {}), "it counts as busy throughout"
    got = await asking
    assert got.body == b"".join(pieces) + LAST
    (done,) = [event for event in await gateway.told() if isinstance(event, RequestCompleted)]
    assert done.status == 200


@pytest.mark.case("P153")
async def test_where_the_limit_is_short_any_byte_still_counts(kit, ask):
    limits = {A: TimeoutConfig(between_bytes_s=60.0)}
    gateway = await kit.start(timeouts=limits)
    silent_phase(kit, gateway, [piece(content="one"), piece(content="two")], gap_s=120.0)
    asking = ask(gateway, stream=True)
    await kit.eventually(gateway.service.in_flight)
    await gateway.advance(61.0)
    got = await asking
    first, error, done, _ = got.body.split(b"\n\n")
    assert first + b"\n\n" == piece(content="one")
    assert json.loads(error.removeprefix(b"data: "))["error"]["type"] == "upstream_timeout"
    assert done == b"data: [DONE]"
    silent_phase(kit, gateway, [piece(reasoning="hm")] * 13, gap_s=10.0)
    asking = ask(gateway, stream=True)
    await kit.eventually(gateway.service.in_flight)
    await gateway.advance(121.0)
    assert (await asking).body == piece(reasoning="hm") * 13 + LAST


@pytest.mark.case("P088")
async def test_a_stream_that_breaks_off_does_not_look_complete(kit, ask):
    gateway = await kit.start()

    async def dies(seen, writer):
        writer.write(kit.event_stream_head)
        for number in range(5):
            writer.write(kit.chunk(piece(content=str(number))))
        await writer.drain()
        writer.transport.abort()

    by_model(kit, a=dies)
    got = await ask(gateway, stream=True)
    *said, error, done, _ = got.body.split(b"\n\n")
    assert [json.loads(event[6:])["choices"][0]["delta"]["content"] for event in said] == list(
        "01234"
    )[: len(said)]
    assert json.loads(error.removeprefix(b"data: "))["error"]["type"] == "upstream_error"
    assert done == b"data: [DONE]"
    assert len(kit.localai.seen) == 1, "what was begun is not sent again"
    (failed,) = [event for event in await gateway.told() if isinstance(event, RequestFailed)]
    assert (failed.error, failed.origin) == ("upstream_error", Origin.UPSTREAM)


@pytest.mark.case("P050")
async def test_a_failure_after_comments_is_one_event_and_no_made_up_text(kit, ask):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    gateway.server.load_s[COLD] = 20.0
    gateway.server.fail_loads(COLD, Transient("out of memory", retry_after_s=10.0))
    asking = ask(gateway, "cold", stream=True)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(24.0)
    got = await asking
    assert got.status == 200
    *comments, event, done, _ = got.body.split(b"\n\n")
    assert comments
    assert all(comment.startswith(b": ") for comment in comments)
    error = json.loads(event.removeprefix(b"data: "))
    assert set(error) == {"error"}
    assert "out of memory" in error["error"]["message"]
    assert done == b"data: [DONE]"
    assert b"choices" not in got.body
    (failed,) = [event for event in await gateway.told() if isinstance(event, RequestFailed)]
    assert failed.error == "model_cooldown"
