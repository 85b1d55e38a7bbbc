from __future__ import annotations

import asyncio

import pytest

from contracts.errors import Permanent, Transient
from controller import outbox as outbox_module
from controller.outbox import RETRY_S, Outbox
from simulator.clock import VirtualClock


class Post:
    """Where things are sent; ``away`` makes each sending fail."""

    def __init__(self):
        self.came: list[int] = []
        self.away = False

    def letter(self, number):
        async def send():
            if self.away:
                raise Transient("away")
            self.came.append(number)

        return send


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def post():
    return Post()


@pytest.fixture
async def outbox(clock):
    outbox = Outbox(clock)
    running = asyncio.create_task(outbox.run())
    yield outbox
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_in_order_as_they_were_added(outbox, post, clock):
    for number in range(3):
        outbox.add(post.letter(number))
    await clock.advance(0.0)
    assert post.came == [0, 1, 2]
    outbox.add(post.letter(3))
    await clock.advance(0.0)
    assert post.came == [0, 1, 2, 3]


async def test_through_an_outage_nothing_is_lost_doubled_or_turned_round(outbox, post, clock):
    post.away = True
    for number in range(3):
        outbox.add(post.letter(number))
    await clock.advance(10 * RETRY_S)
    assert post.came == []
    post.away = False
    await clock.advance(RETRY_S)
    assert post.came == [0, 1, 2]
    assert outbox.dropped == 0


async def test_of_what_is_told_anew_only_the_newest_is_sent(outbox, post, clock):
    """Else a slow store is told ever older things: here one of each four is sent in its time."""
    post.away = True
    for number in range(20):
        outbox.add(post.letter(number), latest="world")
        outbox.add(post.letter(100 + number))
        if number % 5 == 0:
            await clock.advance(RETRY_S)
    post.away = False
    await clock.advance(RETRY_S)
    assert post.came == [19, *range(100, 120)]
    outbox.add(post.letter(20), latest="world")
    await clock.advance(0.0)
    assert post.came[-1] == 20


async def test_one_that_failed_gives_way_to_a_newer_one(clock, post):
    outbox = Outbox(clock)
    came: list[str] = []

    async def fails() -> None:
        outbox.add(post.letter(2), latest="world")
        came.append("old")
        raise Transient("away")

    outbox.add(fails, latest="world")
    await outbox.flush()
    await outbox.flush()
    assert (came, post.came) == (["old"], [2])


async def test_at_the_bound_the_oldest_goes_and_is_counted(outbox, post, clock, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_WAITING", 2)
    post.away = True
    for number in range(4):
        outbox.add(post.letter(number))
    assert outbox.dropped == 2
    post.away = False
    await clock.advance(RETRY_S)
    assert post.came == [2, 3]


async def test_one_on_its_way_when_the_box_fills_up_is_the_oldest(outbox, clock, monkeypatch):
    monkeypatch.setattr(outbox_module, "MAX_WAITING", 1)
    came = []
    fails = asyncio.Event()

    async def slow():
        await fails.wait()
        raise Transient("away after all")

    async def quick():
        came.append("quick")

    outbox.add(slow)
    await clock.advance(0.0)
    outbox.add(quick)
    fails.set()
    await clock.advance(RETRY_S)
    assert (came, outbox.dropped) == (["quick"], 1)


async def test_flush_sends_what_waits(post, clock):
    outbox = Outbox(clock)
    for number in range(3):
        outbox.add(post.letter(number))
    await outbox.flush()
    assert post.came == [0, 1, 2]
    await outbox.flush()
    assert post.came == [0, 1, 2]


async def test_flush_gives_up_at_the_first_that_cannot_be_sent(post, clock):
    outbox = Outbox(clock)
    outbox.add(post.letter(0))
    outbox.add(post.letter(1))
    post.away = True
    await outbox.flush()
    assert post.came == []
    post.away = False
    await outbox.flush()
    assert post.came == [0, 1]


async def test_what_is_no_outage_is_not_swallowed(clock):
    outbox = Outbox(clock)

    async def refused():
        raise Permanent("never")

    outbox.add(refused)
    with pytest.raises(Permanent):
        await outbox.run()
