from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import structlog

from api.control.board import Board
from api.control.feed import EventFeed
from api.control.followers import CALL_LIMIT_S, RESYNC_S, Followers
from api.control.live import LiveView
from api.control.ports import ControlPorts
from contracts.errors import Transient
from contracts.events import PriorityClass, RequestReceived
from contracts.forecasts import ModelForecast
from contracts.ids import ModelId, RequestId
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.world import WorldSnapshot
from simulator.memory_ports import (
    MemoryControlStore,
    MemoryDecisionJournal,
    MemoryEventLog,
    MemoryForecastStore,
    MemoryMailbox,
    MemorySnapshotStore,
    VirtualClock,
)

LLAMA = ModelId("llama")


class Stack:
    """The followers over ports in memory, all on one virtual clock."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1000.0)
        self.events = MemoryEventLog(clock=self.clock)
        self.forecasts = MemoryForecastStore(clock=self.clock)
        self.decisions = MemoryDecisionJournal(clock=self.clock)
        self.snapshots = MemorySnapshotStore()
        self.board = Board(default_target_s=2.0)
        self.feed = EventFeed(boot="b")
        self.live = LiveView(self.board, self.feed, self.clock, stale_after_s=15.0)
        ports = ControlPorts(
            events=self.events,
            forecasts=self.forecasts,
            decisions=self.decisions,
            settings=MemoryControlStore(),
            snapshots=self.snapshots,
            controller=MemoryMailbox(),
        )
        self.followers = Followers(ports, self.board, self.live, self.clock)

    def fault(self) -> str | None:
        return self.board.store_fault

    async def request(self, event_id: str) -> None:
        event = RequestReceived(
            event_id=event_id,
            at_s=900.0,
            source="gw",
            request_id=RequestId(event_id),
            model=LLAMA,
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="c",
            stream=False,
        )
        await self.events.append((event,))


@pytest.fixture
async def stack() -> AsyncIterator[Stack]:
    stack = Stack()
    yield stack
    await stack.followers.stop()


def forecast(name: str) -> ModelForecast:
    return ModelForecast(model=ModelId(name), next_use=None, signals=())


def decision(number: int) -> Decision:
    return Decision(
        policy="p",
        subject="llama",
        outcome=Outcome.CHANGE,
        reason=Reason.DEMAND,
        decision_id=f"d{number}",
        made_at_s=1.0,
    )


async def test_the_log_is_read_from_its_beginning_and_each_event_once(stack: Stack):
    for event_id in ("a", "b", "a"):
        await stack.request(event_id)
    stack.followers.start()
    await stack.clock.advance(1)
    await stack.request("c")
    await stack.clock.advance(2)
    assert stack.board.tally.received == 3
    (row, *_) = stack.board.history.rows(LLAMA, horizon_s=60.0, now_s=1000.0, minutes=1)
    assert row.count == 3


async def test_only_new_decisions_are_counted_and_told(stack: Stack):
    await stack.decisions.append((decision(0),))
    listener = stack.feed.listen(last_event_id=None, opening=[])
    stack.followers.start()
    await stack.clock.advance(1)
    await stack.decisions.append((decision(1),))
    await stack.clock.advance(1)
    assert sum(stack.board.decisions.values()) == 1
    told = b"".join(listener._frames)
    assert b'"id":"d1"' in told
    assert b'"id":"d0"' not in told


async def test_forecasts_come_as_they_change_and_those_that_went_go(stack: Stack):
    await stack.forecasts.put((forecast("old"), forecast("gone")))
    stack.followers.start()
    await stack.clock.advance(1)
    await stack.forecasts.put((forecast("new"),))
    await stack.clock.advance(1)
    assert set(stack.board.forecasts) == {"old", "gone", "new"}
    await stack.forecasts.remove((ModelId("gone"),))
    await stack.clock.advance(RESYNC_S + 2)
    assert set(stack.board.forecasts) == {"old", "new"}


async def test_a_fault_is_logged_when_it_begins_and_when_it_ends(stack: Stack):
    await stack.snapshots.put_world(WorldSnapshot(taken_at_s=1000.0))
    with structlog.testing.capture_logs() as logged:
        stack.followers.start()
        await stack.clock.advance(1)
        stack.snapshots.fault = Transient("away")
        await stack.clock.advance(30)
        assert stack.fault() == "away"
        assert stack.board.world is not None  # what was known stays
        stack.snapshots.fault = None
        await stack.clock.advance(5)
    assert stack.fault() is None
    assert [line["event"] for line in logged] == ["control.source_away", "control.source_back"]


async def test_a_store_that_hangs_counts_as_away(stack: Stack):
    async def hang() -> WorldSnapshot | None:
        await asyncio.Event().wait()
        return None

    stack.snapshots.world = hang  # type: ignore[method-assign]  # a server that never answers
    with structlog.testing.capture_logs():
        stack.followers.start()
        await stack.clock.advance(CALL_LIMIT_S + 2)
    assert stack.board.store_fault == "no answer in time"
    assert stack.followers.faults == {"world": "no answer in time"}


async def test_a_bug_in_one_follower_stops_no_other_and_is_said_once(stack: Stack):
    async def broken(*_: object, **__: object) -> None:
        raise ValueError("a bug")

    stack.decisions.newest = broken  # type: ignore[method-assign,assignment]  # a bug, on purpose
    await stack.request("a")
    with structlog.testing.capture_logs() as logged:
        stack.followers.start()
        await stack.clock.advance(10)
    assert stack.board.tally.received == 1
    assert stack.followers.faults == {"decisions": "internal error: ValueError"}
    assert [line["event"] for line in logged] == ["control.source_broken"]


async def test_event_ids_are_remembered_within_bounds(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("contracts.seen_events.KNOWN_IDS", 2)
    for event_id in ("a", "b", "c", "a"):
        await stack.request(event_id)
    stack.followers.start()
    await stack.clock.advance(1)
    assert stack.board.tally.received == 4  # "a" was forgotten by then
