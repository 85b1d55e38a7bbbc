"""How long and how many requests wait: budgets, deadlines, full queues, slots."""

from __future__ import annotations

import asyncio

import pytest

from contracts.config import QueueConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.messages import LoadAnswer
from contracts.reasons import Reason
from tests.cold_requests import COLD, accept, cancel, post

pytestmark = pytest.mark.integration


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
    go_on = kit.answers_on_word()
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
