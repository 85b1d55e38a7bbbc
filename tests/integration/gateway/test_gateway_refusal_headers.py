"""Answers of the gateway's own to inference requests say as much of themselves as LocalAI's."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from contracts.config import QueueConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.messages import LoadAnswer
from contracts.reasons import Reason

pytestmark = pytest.mark.integration

CHAT = "/v1/chat/completions"
MINE = {"X-Request-ID": "mine-1"}


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def ask(session, gateway, model, headers, **body):
    url = gateway.url + CHAT
    async with session.post(url, json={"model": model, **body}, headers=MINE | headers) as answer:
        await answer.read()
        return answer.status, answer.headers


def served(headers) -> tuple[str | None, ...]:
    names = ("X-Request-ID", "X-Headstart-Model", "X-Headstart-Cold", "X-Headstart-Decision")
    return tuple(headers.get(name) for name in names)


async def test_a_full_queue_says_whether_the_model_was_cold(kit, session):
    queue = QueueConfig(capacity=dict.fromkeys(PriorityClass, 0))
    gateway = await kit.start(queue=queue, expose_topology=True)
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    status, headers = await ask(session, gateway, "cold", {})
    assert status == 429
    assert served(headers) == ("mine-1", "cold", "true", "queue_full")
    assert headers["X-Headstart-Queue-Ms"] == "0"
    assert "X-Headstart-Backend" not in headers, "nobody served it"


async def test_who_waited_in_vain_for_a_load_is_told_for_how_long(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("cold", kit.cold)))
    deadline = {"X-Headstart-Deadline-Ms": "2500"}
    waiting = asyncio.create_task(ask(session, gateway, "cold", deadline))
    await kit.eventually(gateway.service.waiting)
    answer = LoadAnswer(model=ModelId("cold"), accepted=True, reason=Reason.DEMAND)
    await gateway.to_gateways.send(answer)
    await gateway.advance(3.0)
    status, headers = await waiting
    assert status == 503
    assert served(headers) == ("mine-1", "cold", "true", "model_loading")
    assert int(headers["X-Headstart-Queue-Ms"]) >= 2500


async def test_who_waited_in_vain_for_a_slot_met_no_cold_model(kit, session):
    gateway = await kit.start(slots={ModelId("hot"): 1}, keepalive_s=1.0, expose_topology=True)
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    go_on = kit.answers_on_word()
    first = asyncio.create_task(ask(session, gateway, "hot", {}))
    await kit.eventually(lambda: kit.localai.seen)
    deadline = {"X-Headstart-Deadline-Ms": "2500"}
    plain = asyncio.create_task(ask(session, gateway, "hot", deadline))
    stream = asyncio.create_task(ask(session, gateway, "hot", deadline, stream=True))
    await kit.eventually(lambda: gateway.service.waiting() == {ModelId("hot"): 2})
    await gateway.advance(3.0)
    status, headers = await plain
    assert status == 503
    assert served(headers) == ("mine-1", "hot", "false", "queue_timeout")
    assert int(headers["X-Headstart-Queue-Ms"]) >= 2500
    status, headers = await stream
    assert status == 200, "comments had begun"
    assert served(headers) == ("mine-1", "hot", "false", "in_flight")
    assert "X-Headstart-Backend" not in headers, "nobody knows yet who will serve it"
    go_on.set()
    assert (await first)[0] == 200


async def test_a_request_that_is_refused_unread_keeps_its_id(kit, session):
    gateway = await kit.start(max_body_bytes=1_000)
    for headers, body, expected in (
        ({"X-Headstart-Class": "urgent"}, "{}", 400),
        ({}, "x" * 2_000, 413),
    ):
        url = gateway.url + CHAT
        async with session.post(url, data=body, headers=MINE | headers) as answer:
            assert (answer.status, answer.headers["X-Request-ID"]) == (expected, "mine-1")
        async with session.post(url, data=body, headers=headers) as answer:
            assert answer.headers["X-Request-ID"].startswith("gateway-1-")
