from __future__ import annotations

import asyncio
import json

import pytest
from starlette.types import Message

from api.control.event_stream import SEND_LIMIT_S, EventStream
from api.control.feed import HEARTBEAT_S, EventFeed, FeedFull, Listener
from simulator.memory_ports import VirtualClock


def event(frame: bytes) -> tuple[str, str, object]:
    fields = dict(line.split(": ", 1) for line in frame.decode().strip().splitlines())
    return fields["id"], fields["event"], json.loads(fields["data"])


class Reader:
    """Reads a listener's frames as a client would."""

    def __init__(self, listener: Listener, clock: VirtualClock) -> None:
        self.frames: list[bytes] = []
        self.ended = False
        self.task = asyncio.create_task(self._read(listener, clock))

    async def _read(self, listener: Listener, clock: VirtualClock) -> None:
        async for frame in listener.frames(clock):
            self.frames.append(frame)
        self.ended = True

    @property
    def events(self) -> list[tuple[str, object]]:
        return [event(f)[1:] for f in self.frames if f.startswith(b"id:")]


async def test_a_newcomer_gets_the_opening_then_all_that_comes():
    clock, feed = VirtualClock(), EventFeed(boot="b")
    feed.publish("summary", {"n": 0})  # before anybody listens
    listener = feed.listen(last_event_id=None, opening=[("hello", {"v": 1})])
    reader = Reader(listener, clock)
    feed.publish("summary", {"n": 1})
    await clock.advance(1)
    assert reader.events == [("hello", {"v": 1}), ("summary", {"n": 1})]
    assert reader.frames[0].startswith(b": headstart\nretry:")
    feed.leave(listener)
    assert feed.listeners == 0
    reader.task.cancel()


async def test_who_comes_back_gets_the_kept_events_that_were_missed():
    clock, feed = VirtualClock(), EventFeed(boot="b")
    for number in range(3):
        feed.publish("decision", number, keep=True)
        feed.publish("summary", number)
    reader = Reader(feed.listen(last_event_id="b-2", opening=[("hello", 1)]), clock)
    await clock.advance(1)
    assert reader.events == [("hello", 1), ("decision", 1), ("decision", 2)]
    reader.task.cancel()


@pytest.mark.parametrize("last_id", ["other-2", "b-x", "", "nonsense", None])
async def test_ids_of_another_process_or_nobodys_bring_nothing_back(last_id):
    feed = EventFeed(boot="b")
    feed.publish("decision", 1, keep=True)
    clock = VirtualClock()
    reader = Reader(feed.listen(last_event_id=last_id, opening=[]), clock)
    await clock.advance(1)
    assert reader.events == []
    reader.task.cancel()


async def test_a_quiet_stream_says_that_it_is_still_there():
    clock, feed = VirtualClock(), EventFeed(boot="b")
    reader = Reader(feed.listen(last_event_id=None, opening=[]), clock)
    await clock.advance(2.5 * HEARTBEAT_S)
    assert reader.frames[1:] == [b": still here\n\n"] * 2
    reader.task.cancel()


async def test_one_that_lags_too_far_behind_is_let_go_and_the_others_are_not():
    clock, feed = VirtualClock(), EventFeed(boot="b", max_backlog=3)
    slow = feed.listen(last_event_id=None, opening=[("hello", 0)])
    for number in range(5):
        feed.publish("summary", number)
    assert (feed.listeners, feed.dropped) == (1, 1)  # its connection is still there
    reader = Reader(slow, clock)  # reads what was queued, then its stream ends
    await clock.advance(1)
    assert reader.ended
    assert reader.events == [("hello", 0), ("summary", 0), ("summary", 1)]
    feed.leave(slow)
    assert feed.listeners == 0


async def test_listeners_are_bounded_and_a_closed_feed_takes_none():
    clock, feed = VirtualClock(), EventFeed(boot="b", max_listeners=1)
    reader = Reader(feed.listen(last_event_id=None, opening=[]), clock)
    with pytest.raises(FeedFull):
        feed.listen(last_event_id=None, opening=[])
    assert feed.refused == 1
    feed.close()
    await clock.advance(1)
    assert reader.ended
    with pytest.raises(FeedFull):
        feed.listen(last_event_id=None, opening=[])


def test_line_breaks_in_data_do_not_break_the_stream():
    feed = EventFeed(boot="b")
    listener = feed.listen(last_event_id=None, opening=[("decision", {"name": "a\n\nevent: x\r"})])
    (frame,) = listener._frames
    assert event(frame)[2] == {"name": "a\n\nevent: x\r"}


class Client:
    """An ASGI client that can leave, and that may take nothing."""

    def __init__(self, *, takes: int = 100) -> None:
        self.frames: list[bytes] = []
        self.gone = asyncio.Event()
        self._takes = takes

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        if len(self.frames) >= self._takes:
            await asyncio.Event().wait()
        self.frames.append(message.get("body", b""))


def stream(feed: EventFeed, clock: VirtualClock, client: Client) -> asyncio.Task[None]:
    listener = feed.listen(last_event_id=None, opening=[("hello", 1)])
    answer = EventStream(feed, listener, clock)
    return asyncio.create_task(answer({"type": "http"}, client.receive, client.send))


async def test_a_stream_ends_when_its_client_leaves():
    clock, feed, client = VirtualClock(), EventFeed(boot="b"), Client()
    task = stream(feed, clock, client)
    await clock.advance(1)
    assert feed.listeners == 1
    client.gone.set()
    await task
    assert feed.listeners == 0


async def test_a_stream_ends_when_the_feed_closes():
    clock, feed, client = VirtualClock(), EventFeed(boot="b"), Client()
    task = stream(feed, clock, client)
    await clock.advance(1)
    feed.close()
    await task
    assert client.frames[-1] == b""
    assert feed.listeners == 0


async def test_a_stream_ends_when_its_client_takes_nothing():
    clock, feed, client = VirtualClock(), EventFeed(boot="b"), Client(takes=2)
    task = stream(feed, clock, client)
    await clock.advance(SEND_LIMIT_S - 1)
    assert not task.done()
    await clock.advance(2)
    await task
    assert feed.listeners == 0


async def test_a_stream_that_is_cancelled_gives_its_place_back():
    clock, feed, client = VirtualClock(), EventFeed(boot="b"), Client()
    task = stream(feed, clock, client)
    await clock.advance(1)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert feed.listeners == 0
