"""Traffic and loads in windows: what counts, what is left out, and their bounds."""

from __future__ import annotations

from typing import Any

from api.control.kpis.journeys import Journeys
from api.control.kpis.ledger import KpiLedger
from api.control.kpis.loads import LoadBook
from api.control.kpis.rings import Window
from api.control.kpis.traffic import Traffic, TrafficBook
from contracts.events import (
    AnyEvent,
    LoadCause,
    Origin,
    UnloadCause,
)
from contracts.ids import ModelId
from tests.kpi_events import (
    LOW,
    UNRELATED,
    A,
    B,
    done,
    failed,
    feedback,
    first,
    left,
    load_failed,
    loaded,
    received,
    sent,
    unloaded,
)


def traffic_of(*events: AnyEvent, **options: Any) -> TrafficBook:
    book = TrafficBook(**options)
    journeys = Journeys(lambda _: 2.0, on_end=book.ended)
    for event in events:
        journeys.observe(event)
    return book


class TestTraffic:
    def test_requests_are_counted_by_how_they_ended(self):
        book = traffic_of(
            received("ok", 0.0), sent("ok", 0.1, cold=True), first("ok", 0.5, 0.5),
            done("ok", 1.0, 1.0),
            received("slow", 0.0, stream=False), sent("slow", 3.0, wait_s=3.0),
            done("slow", 5.0, 5.0, tokens=None),
            received("lost", 0.0, stream=False), sent("lost", 0.1), done("lost", 20.0, 20.0),
            received("bad", 0.0), failed("bad", 1.0, Origin.CLIENT),
            received("broke", 0.0), failed("broke", 1.0),
            received("502", 0.0), sent("502", 0.0), done("502", 1.0, 1.0, status=502),
            received("404", 0.0), sent("404", 0.0), done("404", 1.0, 1.0, status=404),
            received("left", 0.0), left("left", 1.0),
        )  # fmt: skip
        found = book.of(Window.HOUR, 30.0)
        assert (found.ended, found.completed, found.failed, found.refused, found.cancelled) == (
            8, 3, 2, 2, 1,
        )  # fmt: skip
        assert found.success_ratio == 3 / 5
        assert (found.judged, found.met, found.tolerated) == (4, 1, 1)
        assert found.attainment_ratio == 1 / 4
        assert found.apdex == (1 + 0.5) / 4
        assert (found.dispatched, found.cold, found.wait.count) == (5, 1, 5)
        assert (found.input_tokens, found.token_requests) == (40, 4)
        assert found.satisfaction_ratio is None

    def test_nothing_is_not_zero(self):
        empty = Traffic()
        assert (empty.success_ratio, empty.attainment_ratio, empty.apdex) == (None, None, None)

    def test_a_model_or_a_class_can_be_looked_at_alone(self):
        book = traffic_of(
            received("a", 0.0), done("a", 1.0, 1.0), received("b", 0.0, B, LOW),
            done("b", 1.0, 1.0, B), received("none", 0.0, None), done("none", 1.0, 1.0, None),
        )  # fmt: skip
        assert book.of(Window.WEEK, 2.0).ended == 3
        assert book.of(Window.WEEK, 2.0, priority=LOW).ended == 1
        assert book.of(Window.WEEK, 2.0, model=A).ended == 1
        assert book.of(Window.WEEK, 2.0, model=A, priority=LOW).ended == 0
        assert book.of(3600.0, 9000.0).ended == 0
        assert book.models() == [A, B]

    def test_past_the_bound_the_pair_heard_of_longest_ago_goes_and_sums_keep_it(self):
        book = traffic_of(
            received("a", 0.0), done("a", 1.0, 1.0), received("a2", 0.0), done("a2", 1.0, 1.0),
            received("b", 0.0, B), done("b", 1.0, 1.0, B), max_pairs=1,
        )  # fmt: skip
        assert (book.forgotten, book.models(), book.of(Window.HOUR, 2.0).ended) == (1, [B], 3)

    def test_feedback_that_comes_again_replaces_the_first(self):
        ledger = KpiLedger(lambda _: 2.0)
        for event in (
            received("r", 0.0), done("r", 1.0, 1.0), feedback("r", 0.0), feedback("r", 1.0),
            feedback("unknown", 0.0), received("none", 0.0, None), feedback("none", 0.5),
        ):  # fmt: skip
            ledger.observe(event)
        found = ledger.traffic.of(Window.HOUR, 60.0)
        assert (found.scored, found.satisfaction_ratio) == (2, 0.75)
        assert ledger.traffic.of(Window.HOUR, 60.0, model=A).satisfaction_ratio == 1.0


class TestLoads:
    def test_loads_and_unloads_are_counted_with_what_became_of_prefetches(self):
        book = LoadBook()
        prefetch = LoadCause.PREFETCH
        for event in (
            loaded(0.0, cause=prefetch), sent("r", 1.0), sent("r2", 2.0), unloaded(10.0),
            loaded(20.0), sent("r3", 21.0), load_failed(30.0, B), loaded(40.0, B, cause=prefetch),
            unloaded(50.0, B), unloaded(60.0, B), loaded(500.0, B, load_s=None), UNRELATED,
            sent("x", 2.0, ModelId("never")), sent("y", 2.0, None),
        ):  # fmt: skip
            book.observe(event)
        found = book.of(Window.HOUR, 600.0)
        assert (found.loaded, found.failed, found.reloads) == (4, 1, 1)
        assert (found.used, found.wasted, found.precision) == (1, 1, 0.5)
        assert found.recall == 1 / 3  # of one prefetch that was used and two loads for a request
        assert (found.took.count, found.unloads[UnloadCause.EVICTED]) == (3, 3)
        assert book.of(Window.HOUR, 600.0, A).loaded == 2
        assert book.of(Window.HOUR, 600.0, ModelId("never")).loaded == 0

    def test_without_prefetches_nothing_is_said_of_them(self):
        found = LoadBook().of(Window.DAY, 0.0)
        assert (found.precision, found.recall) == (None, None)

    def test_past_the_bound_a_model_goes(self):
        book = LoadBook(max_models=1)
        book.observe(loaded(0.0))
        book.observe(loaded(1.0, B))
        assert (book.forgotten, book.of(Window.HOUR, 2.0, A).loaded) == (1, 0)
        assert book.of(Window.HOUR, 2.0).loaded == 2

    def test_a_use_after_the_unload_is_no_use(self):
        book = LoadBook()
        for event in (loaded(0.0), unloaded(1.0), sent("r", 2.0)):
            book.observe(event)
        assert book.of(Window.HOUR, 3.0).used == 0
