from __future__ import annotations

import asyncio

import pytest

from contracts.errors import Permanent, Transient
from contracts.events import NodeLost
from contracts.ids import NodeId
from controller.following import BLOCK_S, RETRY_S, Heard, LogFollower, follow
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryEventLog, MemoryMailbox


def event(number: int) -> NodeLost:
    return NodeLost(event_id=f"e{number}", at_s=0.0, source="t", node=NodeId("n"), error="")


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def mailbox(clock):
    return MemoryMailbox(clock=clock)


@pytest.fixture
async def heard(clock, mailbox):
    """What a follower is handed, batch by batch."""
    heard: list[tuple[str, ...]] = []
    following = asyncio.create_task(follow("mail", mailbox.receive, heard.append, clock))
    await clock.advance(0.0)
    yield heard
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)


async def test_what_comes_is_handed_on_at_once_and_once(clock, mailbox, heard):
    await mailbox.send("a")
    await mailbox.send("b")
    await clock.advance(0.0)
    await mailbox.send("c")
    await clock.advance(0.0)
    assert heard == [("a", "b"), ("c",)]


async def test_silence_is_not_handed_on(clock, heard):
    await clock.advance(10 * BLOCK_S)
    assert heard == []


async def test_after_an_outage_it_goes_on_where_it_was(clock, mailbox, heard):
    await mailbox.send("a")
    await clock.advance(0.0)
    mailbox.fault = Transient("away")
    await clock.advance(5.0)
    mailbox.fault = None
    await mailbox.send("b")
    await clock.advance(RETRY_S)
    assert heard == [("a",), ("b",)]


async def test_from_a_given_place(clock, mailbox):
    for text in ("a", "b"):
        await mailbox.send(text)
    heard: list[tuple[str, ...]] = []
    following = asyncio.create_task(
        follow("mail", mailbox.receive, heard.append, clock, after="1-0")
    )
    await clock.advance(0.0)
    following.cancel()
    assert heard == [("b",)]


async def test_a_place_that_was_now_stays_now_through_an_outage(clock, mailbox):
    mailbox.fault = Transient("away")
    heard: list[tuple[str, ...]] = []
    following = asyncio.create_task(follow("mail", mailbox.receive, heard.append, clock))
    await clock.advance(1.0)
    mailbox.fault = None
    await mailbox.send("missed")
    await clock.advance(RETRY_S)
    await mailbox.send("heard")
    await clock.advance(0.0)
    following.cancel()
    assert heard == [("heard",)]


async def test_what_is_no_outage_is_not_swallowed(clock, mailbox):
    mailbox.fault = Permanent("never")
    with pytest.raises(Permanent):
        await follow("mail", mailbox.receive, print, clock)


async def test_what_the_log_tells_twice_is_handed_out_once_and_the_place_moves_on():
    clock = VirtualClock()
    log, place = MemoryEventLog(clock=clock), ["0"]
    follower, heard = LogFollower(log, clock), []
    for told in ((event(1), event(2)), (event(2),)):
        await log.append(told)
    async for found in follower.backlog(lambda: place[0]):
        place[0] = found.place
        heard += [one.event_id for one in found.events]
    assert (heard, place) == (["e1", "e2"], ["3-0"])

    def hear(found: Heard) -> None:
        heard.extend(one.event_id for one in found.events)

    following = asyncio.create_task(follower.follow(hear, after=place[0]))
    await log.append((event(1), event(3)))
    await clock.advance(1.0)
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    assert heard == ["e1", "e2", "e3"]
