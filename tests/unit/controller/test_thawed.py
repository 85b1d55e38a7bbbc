"""Many events folded in a row give the same world as one after the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from contracts.events import PriorityClass, RequestCompleted, RequestDispatched, RequestReceived
from contracts.ids import RequestId
from contracts.world import Residency
from controller.fold import fold
from controller.thawed import Thawed, frozen, thawed
from tests.worlds import NODE, A, B, model, world


def events(count: int):
    """Requests that begin, go and end, some of them sent twice, some left open."""
    for number in range(count):
        name, at_s = (A, B)[number % 2], 100.0 + number
        stamp: dict[str, Any] = {
            "at_s": at_s,
            "source": "g",
            "request_id": RequestId(f"r{number}"),
            "model": name,
        }
        yield RequestReceived(
            **stamp, event_id=f"{number}r", operation="chat", priority=PriorityClass.REALTIME,
            client="c", stream=False,
        )  # fmt: skip
        for again in range(1 + (number % 3 == 0)):
            yield RequestDispatched(
                **stamp, event_id=f"{number}d{again}", node=NODE, queue_wait_s=0.0, cold=False
            )
        if number % 4:
            yield RequestCompleted(
                **stamp, event_id=f"{number}c", status=200, duration_s=1.0, service_s=1.0,
                input_tokens=1, output_tokens=1,
            )  # fmt: skip


START = world(model(A, Residency.HOT), model(B, Residency.COLD))


def test_the_same_comes_of_it():
    one_by_one, together = START, thawed(START)
    for event in events(40):
        one_by_one = fold(one_by_one, event)
        together = fold(together, event)
    assert frozen(together, position="7-0") == replace(one_by_one, position="7-0")
    assert len(one_by_one.requests) == 10


def test_what_stood_before_stays_as_it_was():
    before = replace(START)
    models, requests = dict(START.models), dict(START.requests)
    together = thawed(START)
    for event in events(8):
        together = fold(together, event)
    assert before == START
    assert (START.models, START.requests) == (models, requests)


def test_a_frozen_world_is_folded_into_by_copies_again():
    together = thawed(START)
    for event in events(8):
        together = fold(together, event)
    kept = frozen(together, position="1-0")
    assert not isinstance(kept.models, Thawed)
    assert not isinstance(kept.requests, Thawed)
    again = dict(kept.requests)
    for event in events(20):
        fold(kept, replace(event, request_id=RequestId(f"x{event.event_id}")))
    assert kept.requests == again
