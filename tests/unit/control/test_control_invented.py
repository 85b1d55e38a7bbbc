"""Names that callers made up leave nothing behind, so that they push out no model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from api.control.board import Board
from api.control.feed import EventFeed
from api.control.followers import Followers
from api.control.invented import InventedNames
from api.control.live import LiveView
from api.control.ports import ControlPorts
from contracts.events import AnyEvent, FirstTokenSent, Origin, RequestCompleted, RequestFailed
from contracts.ids import ModelId, RequestId
from simulator.memory_ports import (
    MemoryControlStore,
    MemoryDecisionJournal,
    MemoryEventLog,
    MemoryForecastStore,
    MemoryMailbox,
    MemorySnapshotStore,
    VirtualClock,
)
from tests.worlds import completed, dispatched, failed, loaded, received, stamp

A, B, C = ModelId("a"), ModelId("b"), ModelId("c")


def not_found(request: str, name: ModelId | None, at_s: float) -> RequestFailed:
    return replace(failed(request, name, at_s), status=404, error="http_404", origin=Origin.CLIENT)


def first_token(request: str, name: ModelId, at_s: float) -> FirstTokenSent:
    return FirstTokenSent(**stamp(at_s), request_id=RequestId(request), model=name, ttft_s=0.1)


def told(names: InventedNames, *events: AnyEvent) -> list[ModelId | None]:
    return [names.observe(event) for event in events]


def test_a_name_is_made_up_when_localai_does_not_know_it():
    late: RequestCompleted = replace(completed("r", B, 2.0), status=404)
    names = InventedNames()
    assert told(names, received("r", A, 1.0), not_found("r", A, 1.1)) == [None, A]
    assert told(names, late) == [B]
    assert told(names, not_found("r", None, 1.0), failed("r", A, 1.0)) == [None, None]


def test_a_model_that_has_worked_stays_whatever_is_said_of_it_later():
    for sign in (completed("r", A, 1.0), first_token("r", A, 1.0), loaded(A, 1.0)):
        assert told(InventedNames(), not_found("r", A, 0.5), sign, not_found("r", A, 2.0)) == [
            A, None, None,
        ]  # fmt: skip
    nobody = completed("r", None, 1.0)
    refused: RequestCompleted = replace(completed("r", B, 1.0), status=400)
    assert told(InventedNames(), nobody, refused, not_found("r", B, 2.0)) == [None, None, B]


def test_models_that_worked_are_bounded_and_the_one_longest_ago_goes():
    names = InventedNames(max_models=2)
    told(names, *(completed("r", name, 1.0) for name in (A, B, A, C)))
    assert told(names, *(not_found("r", name, 2.0) for name in (A, B, C))) == [None, B, None]


def story() -> Iterator[AnyEvent]:
    yield received("real", A, 900.0)
    yield dispatched("real", A, 900.1)
    yield completed("real", A, 901.0)
    for number in range(2000):
        name, request = ModelId(f"made-up-{number}"), f"r{number}"
        yield received(request, name, 902.0)
        yield dispatched(request, name, 902.1)
        yield not_found(request, name, 902.2)


async def test_what_is_real_and_rare_is_still_known_after_any_number_of_them():
    clock = VirtualClock(1000.0)
    events, board = MemoryEventLog(clock=clock), Board(default_target_s=2.0)
    live = LiveView(board, EventFeed(boot="b"), clock, stale_after_s=15.0)
    ports = ControlPorts(
        events=events,
        forecasts=MemoryForecastStore(clock=clock),
        decisions=MemoryDecisionJournal(clock=clock),
        settings=MemoryControlStore(),
        snapshots=MemorySnapshotStore(),
        controller=MemoryMailbox(),
    )
    # Ids are drawn anew: a story told in one second has one stamp for all of it.
    await events.append(tuple(replace(event, event_id=str(n)) for n, event in enumerate(story())))
    followers = Followers(ports, board, live, clock)
    followers.start()
    await clock.advance(5)
    await followers.stop()
    assert board.tally.received == 2001
    assert board.history.models == (A,)
    assert [row.model for row in board.kpis.holding.strip(1000.0, step_s=300.0, count=2)] == [A]
    assert board.history.forgotten == 0
    assert not any(board.kpis.forgotten().values())
    # What came is still counted and to be looked up.
    assert len(board.kpis.journeys) == 2001
