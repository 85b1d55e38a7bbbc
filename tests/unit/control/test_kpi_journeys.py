"""Journeys of requests: from events to one end, and what is left out."""

from __future__ import annotations

from typing import Any

import pytest

from api.control.kpis import journeys as journeys_module
from api.control.kpis.journeys import Journey, Journeys
from contracts.events import (
    AnyEvent,
    Origin,
)
from contracts.ids import NodeId
from tests.kpi_events import (
    UNRELATED,
    A,
    B,
    done,
    failed,
    feedback,
    first,
    left,
    load_begins,
    load_failed,
    loaded,
    received,
    sent,
)


def walk(
    *events: AnyEvent, target_s: float = 2.0, **options: Any
) -> tuple[Journeys, list[Journey]]:
    ended: list[Journey] = []
    journeys = Journeys(lambda _: target_s, on_end=ended.append, **options)
    for event in events:
        journeys.observe(event)
    return journeys, ended


class TestJourneys:
    def test_a_streams_time_is_split_and_judged_by_its_first_content(self):
        _, (one,) = walk(
            received("r", 0.0), load_begins(1.0), loaded(5.0),
            sent("r", 5.5, wait_s=5.5, cold=True),
            first("r", 6.0, 6.0), first("r", 7.0, 7.0), done("r", 9.0, 9.0), UNRELATED,
        )  # fmt: skip
        assert (one.wait_s, one.load_s, one.ttft_s, one.duration_s) == (5.5, 4.0, 6.0, 9.0)
        assert (one.cold, one.met, one.judged_s, one.outcome) == (True, False, 6.0, "completed")

    def test_another_request_is_judged_by_its_whole_time(self):
        _, (one,) = walk(received("r", 0.0, stream=False), sent("r", 0.1), done("r", 1.0, 1.0))
        assert (one.judged_s, one.met, one.load_s) == (1.0, True, 0.0)

    def test_a_stream_without_content_that_was_told_is_not_judged(self):
        _, (one,) = walk(received("r", 0.0), sent("r", 0.1), done("r", 1.0, 1.0))
        assert (one.judged_s, one.met) == (None, None)

    @pytest.mark.parametrize(
        ("origin", "ttft_s", "met"),
        [
            (Origin.UPSTREAM, None, False),
            (Origin.CLIENT, None, None),
            (Origin.UPSTREAM, 1.0, True),
        ],
    )
    def test_a_failure_is_missed_unless_it_was_the_callers_or_content_had_come(
        self, origin, ttft_s, met
    ):
        content = () if ttft_s is None else (first("r", ttft_s, ttft_s),)
        _, (one,) = walk(received("r", 0.0), sent("r", 0.1), *content, failed("r", 3.0, origin))
        assert (one.met, one.outcome, one.error) == (met, "failed", "broke")

    def test_what_left_was_refused_or_was_never_sent_is_not_judged(self):
        _, ended = walk(
            received("left", 0.0), left("left", 1.0),
            received("refused", 0.0, stream=False), sent("refused", 0.1),
            done("refused", 0.2, 0.2, status=404),
            received("unsent", 0.0, stream=False), done("unsent", 0.2, 0.2),
            received("nobody", 0.0, None, stream=False), sent("nobody", 0.1, None),
            done("nobody", 0.2, 0.2, None),
        )  # fmt: skip
        assert [one.met for one in ended] == [None] * 4
        assert (ended[0].phase, ended[0].left_because) == ("queued", "left")
        assert ended[3].load_s is None

    def test_events_of_unknown_and_ended_requests_change_nothing(self):
        journeys, ended = walk(
            sent("x", 1.0), first("x", 1.0, 1.0), done("x", 2.0, 1.0), feedback("x", 1.0),
            received("r", 0.0), sent("r", 0.5), done("r", 1.0, 1.0), done("r", 2.0, 2.0),
            sent("r", 3.0, wait_s=3.0),
        )  # fmt: skip
        assert (len(journeys), len(ended)) == (1, 1)
        assert (ended[0].duration_s, ended[0].wait_s) == (1.0, 0.0)

    def test_one_that_went_to_another_node_was_cold_if_it_was_so_once(self):
        _, (one,) = walk(
            received("r", 0.0), sent("r", 1.0, cold=True), sent("r", 2.0, node=NodeId("m")),
            done("r", 3.0, 3.0),
        )  # fmt: skip
        assert (one.cold, one.node) == (True, "m")

    def test_an_answer_tells_the_model_of_one_that_named_none(self):
        _, (one,) = walk(received("r", 0.0, None), sent("r", 0.1, None), done("r", 1.0, 1.0, B))
        assert one.model == B

    def test_an_id_that_comes_again_is_about_the_newer_request(self):
        journeys, _ = walk(received("r", 0.0), received("r", 5.0, B))
        found = journeys.get("r")
        assert found is not None
        assert (found.model, len(journeys), [one.model for one in journeys.newest()]) == (B, 1, [B])

    def test_the_oldest_go_beyond_the_bound_and_after_a_day(self):
        journeys, _ = walk(
            received("a", 0.0), received("b", 1.0), done("b", 2.0, 1.0), received("c", 3.0),
            received("d", 4.0), max_kept=2,
        )  # fmt: skip
        assert journeys.forgotten == 1  # b had ended
        journeys.observe(received("e", 4.0 + 86_401.0))
        assert [one.request_id for one in journeys.newest()] == ["e"]

    def test_what_people_said_is_kept(self):
        journeys, _ = walk(received("r", 0.0), feedback("r", 0.5))
        found = journeys.get("r")
        assert found is not None
        assert found.score == 0.5

    def test_loads_are_known_by_their_begin_or_their_length_and_failures_end_one(self, monkeypatch):
        journeys, _ = walk(
            loaded(10.0, load_s=4.0), load_begins(20.0), load_begins(21.0), load_failed(23.0),
            load_failed(24.0), loaded(30.0, load_s=None), load_begins(40.0),
        )  # fmt: skip
        assert journeys.loading_s(A, 0.0, 15.0) == 4.0
        assert journeys.loading_s(A, 15.0, 35.0) == 3.0
        assert journeys.loading_s(A, 38.0, 45.0) == 5.0  # it still goes on
        assert journeys.loading_s(B, 0.0, 50.0) == 0.0
        monkeypatch.setattr(journeys_module, "_MODELS_KEPT", 1)
        journeys.observe(load_begins(50.0, B))
        assert journeys.loading_s(A, 0.0, 15.0) == 0.0
