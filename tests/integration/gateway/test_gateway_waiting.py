"""Requests for models that are not resident: who waits, who loads, who is told what."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import aiohttp
import pytest

from contracts.config import QueueConfig
from contracts.errors import Transient
from contracts.events import (
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestPhase,
    UnloadCause,
)
from contracts.ids import ModelId
from contracts.messages import LoadAnswer
from contracts.reasons import Reason
from contracts.world import Mode

pytestmark = pytest.mark.integration

COLD = ModelId("cold")


def post(session: aiohttp.ClientSession, gateway, model: str = "cold", **body: object):
    """A chat that is under way: cancel it, and its connection is closed."""

    async def run() -> tuple[int, Mapping[str, str], bytes]:
        url = gateway.url + "/v1/chat/completions"
        async with session.post(url, json={"model": model, **body}) as answer:
            return answer.status, answer.headers, await answer.read()

    return asyncio.create_task(run())


async def cancel(task: asyncio.Task[Any]) -> None:
    task.cancel()
    await asyncio.wait({task})


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def accept(gateway, expected_s: float | None = None) -> None:
    answer = LoadAnswer(model=COLD, accepted=True, reason=Reason.DEMAND, expected_s=expected_s)
    await gateway.to_gateways.send(answer)


async def test_ten_wait_nine_leave_one_load_and_the_tenth_is_answered(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    posts = [post(session, gateway) for _ in range(10)]
    await kit.eventually(lambda: gateway.service.waiting() == {COLD: 10})
    await gateway.advance(1.0)
    await kit.eventually(lambda: gateway.server.calls)
    for leaving in posts[:9]:
        await cancel(leaving)
    await kit.eventually(lambda: gateway.service.waiting() == {COLD: 1})
    await gateway.advance(6.0)
    status, headers, _ = await posts[9]
    assert status == 200
    assert headers["X-Headstart-Cold"] == "true"
    assert headers["X-Headstart-Decision"] == "no_controller"
    assert [call.what for call in gateway.server.calls] == ["load_started", "loaded"]
    assert len(kit.localai.seen) == 1
    events = await gateway.told()
    left = [event for event in events if isinstance(event, RequestCancelled)]
    assert [event.phase for event in left] == [RequestPhase.LOADING] * 9
    (started,) = [event for event in events if isinstance(event, ModelLoadStarted)]
    (loaded,) = [event for event in events if isinstance(event, ModelLoaded)]
    assert started.cause is loaded.cause is LoadCause.GATEWAY
    assert loaded.load_s == pytest.approx(5.0)


async def test_all_leave_and_the_load_goes_on(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    posts = [post(session, gateway) for _ in range(3)]
    await kit.eventually(lambda: gateway.service.waiting() == {COLD: 3})
    await gateway.advance(1.5)
    for leaving in posts:
        await cancel(leaving)
    await gateway.advance(6.0)
    assert gateway.server.resident == {COLD}
    assert not kit.localai.seen


async def test_the_controller_loads_and_the_table_lets_the_request_go(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    (wish,) = await gateway.wanted()
    assert (wish.gateway, wish.model) == ("gateway-1", COLD)
    assert wish.deadline_s - wish.at_s == 60.0
    await accept(gateway, expected_s=4.0)
    await gateway.advance(2.5)
    assert len(await gateway.wanted()) == 3, "it is asked again each second"
    await accept(gateway, expected_s=1.5)
    await gateway.advance(1.0)
    assert not kit.localai.seen
    await gateway.publish(kit.table(kit.route("cold", kit.hot), made_at_s=1_004.0))
    status, headers, _ = await waiting
    assert (status, headers["X-Headstart-Decision"]) == (200, "demand")
    assert int(headers["X-Headstart-Queue-Ms"]) == pytest.approx(3500, abs=600)
    assert not gateway.server.calls
    (dispatched,) = [one for one in await gateway.told() if isinstance(one, RequestDispatched)]
    assert dispatched.cold
    assert dispatched.queue_wait_s == pytest.approx(3.5, abs=0.6)


async def test_silence_counts_from_the_request_that_asks_not_from_one_before(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    first = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await accept(gateway)
    await gateway.advance(2.75)
    await gateway.publish(kit.table(kit.route("cold", kit.hot), made_at_s=1_003.0))
    assert (await first)[0] == 200
    await gateway.publish(kit.table(kit.route("cold", kit.cold), made_at_s=1_003.1))
    second = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(0.75)
    assert not gateway.server.calls, "the controller has not had its second yet"
    assert (await gateway.wanted())[-1].at_s == pytest.approx(1_002.75, abs=0.3)
    await accept(gateway)
    await gateway.publish(kit.table(kit.route("cold", kit.hot), made_at_s=1_004.0))
    assert (await second)[0] == 200
    assert not gateway.server.calls


async def test_a_controller_that_dies_while_it_loads_is_replaced(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await accept(gateway)
    await gateway.advance(2.0)
    assert not gateway.server.calls
    await gateway.advance(8.0)
    status, _, _ = await waiting
    assert status == 200
    assert [call.what for call in gateway.server.calls] == ["load_started", "loaded"]


async def test_a_load_that_dies_with_its_controller_is_tried_again(kit, session):
    gateway = await kit.start()
    loading = kit.route("cold", kit.loading, load_started_at_s=1_000.0)
    await gateway.publish(kit.table(loading))
    # Its death has killed the load, which LocalAI takes for a failure.
    gateway.server.fail_loads(COLD, Transient("failed to load", retry_after_s=10.0))
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await accept(gateway)
    await gateway.advance(30.0)
    assert (await waiting)[0] == 200
    assert [call.what for call in gateway.server.calls] == [
        "load_started",
        "load_failed",
        "load_started",
        "loaded",
    ]


async def test_a_new_controller_that_finds_the_model_cooling_down_is_waited_for(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.loading)))
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await accept(gateway)
    failed = kit.route("cold", kit.failed, cooldown_until_s=1_010.0)
    await gateway.publish(kit.table(failed, token=2, made_at_s=1_001.0))
    for _ in range(5):
        await gateway.to_gateways.send(
            LoadAnswer(model=COLD, accepted=False, reason=Reason.COOL_DOWN, retry_after_s=9.0)
        )
        await gateway.advance(2.0)
    assert not waiting.done()
    await gateway.publish(kit.table(kit.route("cold", kit.hot), token=2, made_at_s=1_015.0))
    assert (await waiting)[0] == 200


async def test_what_is_unknown_or_resident_or_only_observed_goes_at_once(kit, session):
    gateway = await kit.start()
    assert (await post(session, gateway))[1]["X-Headstart-Decision"] == "pass_through"
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    assert (await post(session, gateway, "hot"))[1]["X-Headstart-Decision"] == "resident"
    assert (await post(session, gateway, "no-such"))[1]["X-Headstart-Decision"] == "pass_through"
    await gateway.publish(
        kit.table(kit.route("cold", kit.cold), made_at_s=1_001.0, mode=Mode.OBSERVE)
    )
    _, headers, _ = await post(session, gateway)
    assert headers["X-Headstart-Decision"] == "observe_only"
    assert headers["X-Headstart-Cold"] == "true"
    assert not await gateway.wanted()


async def test_an_alias_waits_for_its_target(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold), aliases={"gpt-4": COLD}))
    waiting = post(session, gateway, "gpt-4")
    await kit.eventually(lambda: gateway.service.waiting() == {COLD: 1})
    await gateway.publish(
        kit.table(kit.route("cold", kit.hot), aliases={"gpt-4": COLD}, made_at_s=1_001.0)
    )
    _, headers, _ = await waiting
    assert headers["X-Headstart-Model"] == "cold"
    assert b'"gpt-4"' in kit.localai.seen[0].body, "LocalAI is asked as the caller asked"


@pytest.mark.parametrize(
    ("reason", "status", "kind"),
    [
        (Reason.COOL_DOWN, 503, "model_cooldown"),
        (Reason.NODE_LOST, 503, "no_backend"),
        (Reason.NEVER_FITS, 503, "no_backend"),
    ],
)
async def test_a_refused_load_is_told_to_all_who_wait(kit, session, reason, status, kind):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    posts = [post(session, gateway) for _ in range(2)]
    await kit.eventually(lambda: gateway.service.waiting() == {COLD: 2})
    refused = LoadAnswer(
        model=COLD, accepted=False, reason=reason, retry_after_s=12.3, message="so it is"
    )
    await gateway.to_gateways.send(refused)
    for waiting in posts:
        got, headers, body = await waiting
        assert (got, headers["Retry-After"]) == (status, "13")
        assert b"so it is" in body
        assert f'"type":"{kind}"'.encode() in body
    assert not gateway.server.calls


@pytest.mark.parametrize("message", ["", "cold", "cold: the node does not answer"])
async def test_a_refusal_says_its_reason_once(kit, session, message):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.to_gateways.send(
        LoadAnswer(model=COLD, accepted=False, reason=Reason.NODE_LOST, message=message)
    )
    assert (await waiting)[2].count(b"the node does not answer") == 1


async def test_a_load_that_the_controller_does_not_schedule_passes(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.to_gateways.send(
        LoadAnswer(model=COLD, accepted=False, reason=Reason.UNKNOWN_MODEL)
    )
    assert (await waiting)[1]["X-Headstart-Decision"] == "pass_through"


async def test_a_controller_that_stops_leaves_the_load_to_us(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.to_gateways.send(
        LoadAnswer(model=COLD, accepted=False, reason=Reason.SHUTTING_DOWN)
    )
    await kit.eventually(lambda: gateway.server.calls)
    await gateway.advance(6.0)
    assert (await waiting)[0] == 200


async def test_a_failed_model_is_refused_until_its_cool_down_ends(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.failed, cooldown_until_s=1_020.0)))
    status, headers, body = await post(session, gateway, stream=True)
    assert (status, headers["Retry-After"]) == (503, "20")
    assert b"model_cooldown" in body
    await gateway.clock.advance(21.0)
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await cancel(waiting)
    await kit.eventually(lambda: not gateway.service.waiting())


async def test_a_load_of_our_own_that_fails_is_told_with_its_cool_down(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    gateway.server.fail_loads(COLD, Transient("failed to load model: boom", retry_after_s=10.0))
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(8.0)
    status, headers, body = await waiting
    assert (status, headers["Retry-After"]) == (503, "10")
    assert b"boom" in body
    assert (await post(session, gateway))[0] == 503, "and the next one is not even let in"
    assert any(isinstance(event, ModelLoadFailed) for event in await gateway.told())


async def test_a_localai_that_cannot_be_asked_to_load_is_no_backend(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    gateway.server.fault = Transient("connection refused")
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(2.0)
    status, _, body = await waiting
    assert status == 503
    assert b'"type":"no_backend"' in body


async def test_alone_the_longest_idle_model_makes_room(kit, session):
    gateway = await kit.start()
    gateway.server.resident = {ModelId("hot"), ModelId("other")}
    await gateway.publish(
        kit.table(
            kit.route("cold", kit.cold, footprint_bytes=60),
            kit.route("hot", kit.hot, footprint_bytes=50, last_used_at_s=990.0),
            kit.route("other", kit.hot, footprint_bytes=50, last_used_at_s=980.0),
            free_bytes=20,
        )
    )
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(7.0)
    assert (await waiting)[0] == 200
    assert gateway.server.resident == {ModelId("hot"), COLD}
    (gone,) = [one for one in await gateway.told() if isinstance(one, ModelUnloaded)]
    assert (gone.model, gone.cause) == ("other", UnloadCause.GATEWAY)


async def test_a_load_that_another_gateway_runs_is_waited_for(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    assert await gateway.lock.take(COLD, "gateway-2", hold_s=3.0)
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(2.5)
    assert not gateway.server.calls
    await gateway.advance(8.0)
    assert (await waiting)[0] == 200


async def test_past_the_budget_the_answer_says_how_far_the_load_is(kit, session):
    gateway = await kit.start(min_load_budget_s=10.0)
    await gateway.publish(
        kit.table(kit.route("cold", kit.loading, load_started_at_s=995.0, expected_load_s=18.0))
    )
    gateway.server.load_s[COLD] = 1_000.0
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    for _ in range(19):
        await accept(gateway)
        await gateway.advance(2.0)
    status, headers, body = await waiting
    assert status == 503
    assert headers["X-Headstart-Decision"] == "model_loading"
    assert headers["Retry-After"] == "5"
    loading = b'"loading":{"model":"cold","state":"loading","elapsed_s":41.0,"expected_s":null}'
    assert loading in body, "twice the expected load was waited for: nobody knows any more"


async def test_a_deadline_of_the_callers_ends_the_wait(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))

    async def run():
        url = gateway.url + "/v1/chat/completions"
        headers = {"X-Headstart-Deadline-Ms": "2500"}
        async with session.post(url, json={"model": "cold"}, headers=headers) as answer:
            return answer.status

    waiting = asyncio.create_task(run())
    await kit.eventually(gateway.service.waiting)
    await accept(gateway)
    await gateway.advance(3.0)
    assert await waiting == 503


async def test_a_full_queue_refuses_at_once(kit, session):
    capacity = {PriorityClass.REALTIME: 2, PriorityClass.BATCH: 1, PriorityClass.BACKGROUND: 0}
    gateway = await kit.start(queue=QueueConfig(capacity=capacity))
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    posts = [post(session, gateway) for _ in range(2)]
    await kit.eventually(lambda: gateway.service.waiting() == {COLD: 2})
    status, headers, body = await post(session, gateway)
    assert (status, headers["Retry-After"]) == (429, "5")
    assert b'"type":"queue_full"' in body
    url = gateway.url + "/v1/messages"
    background = {"X-Headstart-Class": "background"}
    async with session.post(url, json={"model": "cold"}, headers=background) as answer:
        assert answer.status == 429
        assert (await answer.json())["error"]["type"] == "queue_full"
        assert (await answer.json())["type"] == "error"
    for waiting in posts:
        await cancel(waiting)
    await kit.eventually(lambda: not gateway.service.waiting())


async def test_slots_of_a_model_are_counted_here(kit, session):
    gateway = await kit.start(slots={ModelId("hot"): 1})
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    go_on = asyncio.Event()

    async def script(seen, writer):
        await go_on.wait()
        writer.write(kit.reply())

    kit.localai.script = script
    first = post(session, gateway, "hot")
    await kit.eventually(lambda: kit.localai.seen)
    late, second = post(session, gateway, "hot"), post(session, gateway, "hot")
    await kit.eventually(gateway.service.waiting)
    await kit.eventually(lambda: gateway.service.queued()[PriorityClass.REALTIME] == 2)
    await cancel(late)
    await kit.eventually(lambda: gateway.service.queued()[PriorityClass.REALTIME] == 1)
    assert len(kit.localai.seen) == 1
    go_on.set()
    assert (await first)[0] == (await second)[0] == 200
    go_on.clear()
    third = post(session, gateway, "hot")
    await kit.eventually(lambda: len(kit.localai.seen) == 3)
    fourth = post(session, gateway, "hot")
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(31.0)
    status, headers, body = await fourth
    assert status == 503
    assert b'"type":"queue_timeout"' in body
    assert int(headers["Retry-After"]) >= 1
    go_on.set()
    assert (await third)[0] == 200


async def beats_after(gateway, count: int):
    async with asyncio.timeout(10.0):
        while len(beats := await gateway.beats()) <= count:  # noqa: ASYNC110 - polls a log
            await asyncio.sleep(0.002)
    return beats[count:]


async def test_a_drain_is_acknowledged_and_told_when_it_is_done(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    go_on = asyncio.Event()

    async def script(seen, writer):
        await go_on.wait()
        writer.write(kit.reply())

    kit.localai.script = script
    running = post(session, gateway, "hot")
    await kit.eventually(lambda: kit.localai.seen)
    hot = ModelId("hot")
    before = len(await gateway.beats())
    await gateway.publish(
        kit.table(kit.route("hot", kit.hot), made_at_s=1_001.0, draining={hot: "drain-7"})
    )
    # No time passes on the clock: both beats come at once.
    first = (await beats_after(gateway, before))[0]
    assert (first.drains, first.in_flight) == (("drain-7",), {hot: 1})
    waiting = post(session, gateway, "hot")
    await kit.eventually(lambda: gateway.service.waiting() == {hot: 1})
    assert [wish.model for wish in await gateway.wanted()] == [hot]
    before = len(await gateway.beats())
    go_on.set()
    await running
    last = (await beats_after(gateway, before))[0]
    assert (last.drains, last.in_flight, last.waiting) == (("drain-7",), {}, {hot: 1})
    assert last.queued == {PriorityClass.REALTIME: 1}
    assert len(kit.localai.seen) == 1, "nothing new went there"
    await gateway.publish(kit.table(kit.route("hot", kit.hot), made_at_s=1_002.0))
    assert (await waiting)[0] == 200


async def test_beats_come_each_second_and_the_last_one_says_goodbye(kit):
    gateway = await kit.start()
    await gateway.advance(5.0)
    beats = await gateway.beats()
    assert 5 <= len(beats) <= 7
    await gateway.service.link.say_goodbye()
    assert (await gateway.beats())[-1].leaving


async def test_without_redis_requests_flow_on_the_last_table_and_events_are_kept(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("hot", kit.hot), kit.route("cold", kit.cold)))
    away = Transient("redis is away")
    ports = (gateway.events, gateway.to_controller, gateway.to_gateways, gateway.lock)
    for port in ports:
        port.fault = away
    gateway.snapshots.fault = away
    await gateway.advance(2.0)
    assert (await post(session, gateway, "hot"))[1]["X-Headstart-Decision"] == "resident"
    waiting = post(session, gateway)
    await kit.eventually(gateway.service.waiting)
    await gateway.advance(0.5)
    assert not gateway.server.calls, "a server that is back within a second changes nothing"
    await gateway.advance(8.0)
    assert (await waiting)[1]["X-Headstart-Decision"] == "no_controller"
    async with session.get(gateway.url + "/headstart/readyz") as answer:
        assert (answer.status, (await answer.json())["redis"]) == (200, "away")
    for port in (*ports, gateway.snapshots):
        port.fault = None
    await gateway.snapshots.put_routing(
        kit.table(kit.route("hot", kit.cold), made_at_s=1_003.0, token=2)
    )
    await gateway.advance(2.0)
    assert gateway.service.room._book.table.token == 2, "the stored table is read on return"
    completed = [one for one in await gateway.told() if isinstance(one, RequestCompleted)]
    assert len(completed) == 2


async def test_a_table_of_an_earlier_leader_is_not_obeyed(kit):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("hot", kit.hot), token=5))
    await gateway.to_gateways.send(kit.table(token=4, made_at_s=2_000.0))
    await asyncio.sleep(0.05)
    assert gateway.service.room._book.table.token == 5


async def test_a_waiting_stream_gets_comments_and_then_its_answer(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    stream = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'

    async def script(seen, writer):
        assert seen.one("accept-encoding") is None
        writer.write(kit.event_stream_head + kit.chunk(stream) + b"0\r\n\r\n")

    kit.localai.script = script
    waiting = post(session, gateway, stream=True)
    await kit.eventually(gateway.service.waiting)
    for _ in range(16):
        await accept(gateway, expected_s=40.0)
        await gateway.advance(2.0)
    await gateway.publish(kit.table(kit.route("cold", kit.hot), made_at_s=1_032.0))
    status, headers, body = await waiting
    assert status == 200
    assert headers["Content-Type"] == "text/event-stream"
    assert headers["X-Accel-Buffering"] == "no"
    assert headers["X-Headstart-Cold"] == "true"
    assert body == (
        b": headstart waiting 15 s of about 40 s\n\n: headstart waiting 30 s of about 40 s\n\n"
        + stream
    )


@pytest.mark.parametrize(
    ("path", "last"),
    [
        ("/v1/chat/completions", b"data: [DONE]\n\n"),
        ("/v1/messages", b'"type":"model_cooldown","message":'),
        ("/v1/responses", b'"code":"model_cooldown"}}\n\n'),
    ],
)
async def test_after_comments_a_failure_is_an_event(kit, session, path, last):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))

    async def run():
        async with session.post(gateway.url + path, json={"model": "cold", "stream": True}) as got:
            return got.status, await got.read()

    waiting = asyncio.create_task(run())
    await kit.eventually(gateway.service.waiting)
    for _ in range(8):
        await accept(gateway)
        await gateway.advance(2.0)
    await gateway.to_gateways.send(
        LoadAnswer(model=COLD, accepted=False, reason=Reason.COOL_DOWN, message="boom")
    )
    status, body = await waiting
    assert status == 200
    assert body.startswith(b": headstart waiting 15 s\n\n")
    assert b"boom" in body
    assert last in body
    (failed,) = [one for one in await gateway.told() if isinstance(one, RequestFailed)]
    assert (failed.status, failed.error) == (200, "model_cooldown")


async def test_after_comments_an_error_of_localai_is_an_event(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))

    async def script(seen, writer):
        body = b'{"error": {"message": "context is full", "code": 400}}'
        writer.write(kit.reply(body, status="400 Bad Request"))

    kit.localai.script = script
    waiting = post(session, gateway, stream=True)
    await kit.eventually(gateway.service.waiting)
    for _ in range(8):
        await accept(gateway)
        await gateway.advance(2.0)
    await gateway.publish(kit.table(kit.route("cold", kit.hot), made_at_s=1_016.0))
    _, _, body = await waiting
    assert b"context is full" in body
    assert body.endswith(b"data: [DONE]\n\n")


async def test_background_work_may_wait_for_its_load_as_long_as_for_a_slot(kit, session):
    """It lets others go first, so that its load may begin late."""
    gateway = await kit.start(min_load_budget_s=10.0)
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))

    async def run() -> int:
        url = gateway.url + "/v1/chat/completions"
        sent = {"X-Headstart-Class": "batch"}
        async with session.post(url, json={"model": "cold"}, headers=sent) as answer:
            return int(answer.status)

    waiting = asyncio.create_task(run())
    await kit.eventually(gateway.service.waiting)
    waited_s = 0.0
    while not waiting.done():
        await gateway.to_gateways.send(
            LoadAnswer(model=COLD, accepted=True, reason=Reason.MAY_WAIT, expected_s=5.0)
        )
        await gateway.advance(1.0)
        waited_s += 1.0
    assert await waiting == 503
    assert 115.0 < waited_s < 130.0
    (wanted, *_) = await gateway.wanted()
    assert wanted.priority is PriorityClass.BATCH
