"""What a gateway and its controller tell each other: drains, beats, tables, and without Redis."""

from __future__ import annotations

import asyncio

import pytest

from contracts.errors import Transient
from contracts.events import PriorityClass, RequestCompleted
from contracts.ids import ModelId
from tests.cold_requests import post

pytestmark = pytest.mark.integration


async def beats_after(gateway, count: int):
    async with asyncio.timeout(10.0):
        while len(beats := await gateway.beats()) <= count:  # noqa: ASYNC110 - polls a log
            await asyncio.sleep(0.002)
    return beats[count:]


async def test_a_drain_is_acknowledged_and_told_when_it_is_done(kit, session):
    gateway = await kit.start()
    await gateway.publish(kit.table(kit.route("hot", kit.hot)))
    go_on = kit.answers_on_word()
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
