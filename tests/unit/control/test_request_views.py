"""Why a request was slow, in words that add up."""

from __future__ import annotations

from typing import Any

import pytest

from api.control.kpis.journeys import Journey
from api.control.request_views import phases_of, request_view
from contracts.events import Origin, PriorityClass
from contracts.ids import ModelId, RequestId


def journey(**known: Any) -> Journey:
    return Journey(
        request_id=RequestId("r"),
        model=ModelId("a"),
        operation="chat",
        priority=PriorityClass.REALTIME,
        stream=True,
        received_at_s=100.0,
        **known,
    )


def parts(one: Journey) -> list[tuple[str, float]]:
    return [(phase.name, phase.seconds) for phase in phases_of(one)]


def test_a_stream_has_four_parts_that_add_up():
    one = journey(
        dispatched_at_s=105.0, wait_s=5.0, load_s=4.0, ttft_s=6.0, duration_s=10.0,
        outcome="completed", status=200, target_s=2.0, met=False,
    )  # fmt: skip
    assert parts(one) == [("queue", 1.0), ("load", 4.0), ("first_content", 1.0), ("rest", 4.0)]
    said = request_view(one, 200.0).sentence
    assert said.startswith(
        "It was answered with 200 after 10.00 s. Most of its time, 4.00 s (40 %)"
    )
    assert said.endswith("It missed its target of 2 s.")


def test_without_first_content_there_is_the_wait_and_localai():
    one = journey(dispatched_at_s=101.0, wait_s=1.0, duration_s=3.0, outcome="completed")
    assert parts(one) == [("queue", 1.0), ("load", 0.0), ("upstream", 2.0)]


def test_an_answer_whose_start_nobody_recorded_did_not_wait_for_a_slot():
    one = journey(duration_s=3.0, outcome="completed", status=200)
    assert parts(one) == []
    assert "slot" not in request_view(one, 200.0).sentence


def test_one_that_never_went_anywhere_waited_all_the_time():
    refused = journey(
        duration_s=30.0, outcome="failed", error="queue_timeout", origin=Origin.GATEWAY
    )
    assert parts(refused) == [("queue", 30.0)]
    said = request_view(refused, 200.0).sentence
    assert said.startswith("It failed after 30.00 s: queue_timeout (gateway).")


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({}, "It has been waiting for 5.0 s."),
        ({"dispatched_at_s": 101.0, "wait_s": 1.0}, "It is being answered, 5.0 s after it came."),
        (
            {"outcome": "cancelled", "duration_s": 2.0, "phase": "loading", "left_because": "left"},
            "Its caller left after 2.00 s, while it was loading.",
        ),
        (
            {"outcome": "cancelled", "left_because": "preempted"},
            "It was preempted, while it was under way.",
        ),
        ({"outcome": "failed"}, "It failed: no reason told."),
        (
            {"outcome": "completed", "status": 200, "wait_s": 0.0, "met": True, "target_s": 2.0},
            "It was answered with 200. It met its target of 2 s.",
        ),
    ],
)
def test_how_it_stands_is_said_first(known, said):
    assert request_view(journey(**known), 105.0).sentence.startswith(said)


def test_two_clocks_never_give_a_part_below_nothing():
    one = journey(wait_s=1.0, load_s=1.0, ttft_s=0.9, duration_s=0.8)
    assert [seconds for _, seconds in parts(one)] == [0.0, 1.0, 0.0, 0.0]
