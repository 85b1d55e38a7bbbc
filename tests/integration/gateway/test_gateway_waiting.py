"""Requests for models that are not resident: who loads, who waits, who is told what."""

from __future__ import annotations

import pytest

from contracts.errors import Transient
from contracts.events import (
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    RequestCancelled,
    RequestDispatched,
    RequestPhase,
    UnloadCause,
)
from contracts.ids import ModelId
from contracts.messages import LoadAnswer
from contracts.reasons import Reason
from contracts.world import Mode
from tests.cold_requests import COLD, accept, cancel, post

pytestmark = pytest.mark.integration


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
