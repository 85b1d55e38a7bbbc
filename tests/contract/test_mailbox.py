from __future__ import annotations

import asyncio

import pytest

from adapters.redis_mailbox import RedisMailbox, to_controller, to_gateways
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import GatewayBeat, LoadRequested, ToController, ToGateways
from contracts.ports import Mailbox
from contracts.routing import ModelRoute, RoutingTable
from contracts.world import Mode, Residency
from simulator.memory_ports import MemoryMailbox


@pytest.fixture
def mailbox(backend) -> Mailbox[ToController]:
    return MemoryMailbox() if backend.client is None else to_controller(backend.client)


def wish(number: int) -> LoadRequested:
    return LoadRequested(model=ModelId(f"m{number}"), at_s=float(number))


async def test_a_reader_from_now_on_misses_nothing_between_its_calls(mailbox):
    await mailbox.send(wish(0))
    place, nothing = await mailbox.receive("$", block_s=0.0)
    assert nothing == ()
    await mailbox.send(wish(1))
    await mailbox.send(wish(2))
    place, messages = await mailbox.receive(place, block_s=0.0)
    assert messages == (wish(1), wish(2))
    await mailbox.send(wish(3))
    place, messages = await mailbox.receive(place, block_s=0.0)
    assert messages == (wish(3),)
    assert await mailbox.receive(place, block_s=0.0) == (place, ())


async def test_a_reader_of_an_empty_mailbox_keeps_its_place(mailbox):
    place, nothing = await mailbox.receive("$", block_s=0.0)
    assert nothing == ()
    await mailbox.send(wish(1))
    _, messages = await mailbox.receive(place, block_s=0.0)
    assert messages == (wish(1),)


async def test_every_reader_sees_every_message(mailbox):
    places = [(await mailbox.receive("$", block_s=0.0))[0] for _ in range(3)]
    await mailbox.send(wish(1))
    seen = [await mailbox.receive(place, block_s=0.0) for place in places]
    assert [messages for _, messages in seen] == [(wish(1),)] * 3


async def test_a_waiting_reader_is_woken(mailbox):
    reading = asyncio.create_task(mailbox.receive("$", block_s=5.0))
    await asyncio.sleep(0.05)
    await mailbox.send(wish(1))
    async with asyncio.timeout(2.0):
        assert (await reading)[1] == (wish(1),)


async def test_a_waiting_reader_comes_back_empty_after_its_time(mailbox):
    _, messages = await mailbox.receive("$", block_s=0.05)
    assert messages == ()


async def test_a_beat_arrives_whole(mailbox):
    beat = GatewayBeat(
        gateway=GatewayId("g"),
        at_s=1.0,
        in_flight={ModelId("a/b"): 2},
        drains=("d1",),
        queued={PriorityClass.BATCH: 3},
    )
    await mailbox.send(beat)
    assert (await mailbox.receive("0", block_s=0.0))[1] == (beat,)


async def test_the_mailbox_to_gateways_is_another(backend):
    box: Mailbox[ToGateways] = (
        MemoryMailbox() if backend.client is None else to_gateways(backend.client)
    )
    model = ModelId("m")
    table = RoutingTable(
        token=7,
        made_at_s=1.0,
        mode=Mode.ACTIVE,
        models={model: ModelRoute(model=model, node=NodeId("n"), residency=Residency.HOT)},
        classes={model: PriorityClass.BATCH},
    )
    await box.send(table)
    assert (await box.receive("0", block_s=0.0))[1] == (table,)


async def test_the_mailbox_is_bounded(backend):
    box: Mailbox[ToController] = (
        MemoryMailbox(max_entries=100)
        if backend.client is None
        else RedisMailbox(backend.client, "headstart:small", (LoadRequested,), max_entries=100)
    )
    for number in range(400):
        await box.send(wish(number))
    _, messages = await box.receive("0", block_s=0.0)
    assert 100 <= len(messages) <= 250
    assert messages[-1] == wish(399)
