"""A caller that leaves in the very moment in which its request may go keeps no slot."""

from __future__ import annotations

import asyncio

import aiohttp
import pytest

from contracts.ids import ModelId

pytestmark = pytest.mark.integration

HOT = ModelId("hot")


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


def chat(session, gateway, **body):
    async def run() -> int:
        url = gateway.url + "/v1/chat/completions"
        async with session.post(url, json={"model": HOT, **body}) as answer:
            await answer.read()
            return int(answer.status)

    return asyncio.create_task(run())


async def running_request(kit, session):
    """A gateway with one slot, and what takes it until ``go_on`` is set."""
    gateway = await kit.start(slots={HOT: 1})
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    go_on = kit.answers_on_word()
    first = chat(session, gateway)
    await kit.eventually(lambda: kit.localai.seen)
    return gateway, first, go_on


@pytest.mark.parametrize("stream", [True, False])
async def test_the_slot_is_free_again(kit, session, stream, monkeypatch):
    gateway, first, go_on = await running_request(kit, session)
    room = gateway.service.room
    wait = room.wait

    async def wait_and_leave(waiter):
        passed = await wait(waiter)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()  # as the server does when the connection ends
        return passed

    monkeypatch.setattr(room, "wait", wait_and_leave)
    leaving = chat(session, gateway, stream=stream)
    await kit.eventually(gateway.service.waiting)
    go_on.set()
    assert await first == 200
    await leaving
    await kit.eventually(lambda: not gateway.service.in_flight())
    monkeypatch.undo()
    assert await chat(session, gateway) == 200


async def test_a_flood_that_leaves_at_once_keeps_no_slot(kit, session):
    gateway, first, go_on = await running_request(kit, session)
    flood = [chat(session, gateway, stream=True) for _ in range(9)]
    await kit.eventually(lambda: gateway.service.waiting() == {HOT: 9})
    go_on.set()
    assert await first == 200
    for leaving in flood:
        leaving.cancel()
    await asyncio.wait(flood)
    await kit.eventually(lambda: not gateway.service.in_flight())
    assert await chat(session, gateway) == 200
