"""Key figures as folds over events: what they count, what they leave out, and their bounds."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from api.control.kpis import counters as counters_module
from api.control.kpis import journeys as journeys_module
from api.control.kpis import panels as panels_module
from api.control.kpis import violations as violations_module
from api.control.kpis.counters import OTHER, LiveCounters
from api.control.kpis.holding import COARSE_S, FINE_KEPT, FINE_S, Held, HoldingBook
from api.control.kpis.journeys import Journey, Journeys
from api.control.kpis.ledger import KpiLedger
from api.control.kpis.loads import LoadBook
from api.control.kpis.panels import MINUTE_S, PANELS, QUARTER_S, PanelBook
from api.control.kpis.rings import Ring, TwoRings, Window
from api.control.kpis.spread import Spread, merged
from api.control.kpis.traffic import Traffic, TrafficBook
from api.control.kpis.violations import PriorityWatch, WentAhead
from contracts.events import (
    ActionApplied,
    AnyEvent,
    FeedbackGiven,
    FirstTokenSent,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    NodeObserved,
    Origin,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestPhase,
    RequestReceived,
    UnloadCause,
)
from contracts.ids import ModelId, NodeId, RequestId
from contracts.readings import GpuReading, ProbeReading
from contracts.world import ModelStatus, NodeStatus, QueueStatus, Residency, WorldSnapshot

A, B = ModelId("a"), ModelId("b")
NODE = NodeId("n")
HIGH, MIDDLE, LOW = PriorityClass
GB = 1000**3
_numbers = itertools.count()


def told(at_s: float) -> dict[str, Any]:
    return {"event_id": str(next(_numbers)), "at_s": at_s, "source": "gw"}


def received(
    name: str, at_s: float, model: ModelId | None = A, priority=HIGH, *, stream=True
) -> RequestReceived:
    return RequestReceived(
        **told(at_s), request_id=RequestId(name), model=model, operation="chat",
        priority=priority, client="c", stream=stream,
    )  # fmt: skip


def sent(name: str, at_s: float, model=A, *, wait_s=0.0, cold=False, node=NODE):
    return RequestDispatched(
        **told(at_s), request_id=RequestId(name), model=model, node=node,
        queue_wait_s=wait_s, cold=cold,
    )  # fmt: skip


def first(name: str, at_s: float, ttft_s: float, model=A) -> FirstTokenSent:
    return FirstTokenSent(**told(at_s), request_id=RequestId(name), model=model, ttft_s=ttft_s)


def done(name: str, at_s: float, duration_s: float, model=A, *, status=200, tokens=10):
    return RequestCompleted(
        **told(at_s), request_id=RequestId(name), model=model, status=status,
        duration_s=duration_s, service_s=duration_s, input_tokens=tokens, output_tokens=tokens,
    )  # fmt: skip


def failed(name: str, at_s: float, origin=Origin.UPSTREAM, *, status=500, duration_s=1.0):
    return RequestFailed(
        **told(at_s), request_id=RequestId(name), model=A, status=status, error="broke",
        origin=origin, duration_s=duration_s,
    )  # fmt: skip


def left(name: str, at_s: float) -> RequestCancelled:
    return RequestCancelled(
        **told(at_s), request_id=RequestId(name), model=A, phase=RequestPhase.QUEUED, duration_s=1.0
    )


def load_begins(at_s: float, model=A) -> ModelLoadStarted:
    return ModelLoadStarted(**told(at_s), model=model, node=NODE, cause=LoadCause.DEMAND)


def loaded(at_s: float, model=A, *, cause=LoadCause.DEMAND, load_s=4.0, size=GB) -> ModelLoaded:
    return ModelLoaded(
        **told(at_s), model=model, node=NODE, cause=cause, load_s=load_s, footprint_bytes=size
    )


def load_failed(at_s: float, model=A) -> ModelLoadFailed:
    return ModelLoadFailed(
        **told(at_s), model=model, node=NODE, cause=LoadCause.DEMAND, error="x", retry_after_s=None
    )


def unloaded(at_s: float, model=A, cause=UnloadCause.EVICTED) -> ModelUnloaded:
    return ModelUnloaded(**told(at_s), model=model, node=NODE, cause=cause)


def feedback(name: str, score: float, at_s: float = 50.0) -> FeedbackGiven:
    return FeedbackGiven(**told(at_s), request_id=RequestId(name), model=A, score=score)


UNRELATED = ActionApplied(**told(0.0), action_id="x", kind="load", subject="a", took_s=1.0)


class TestSpread:
    def test_quantiles_are_right_to_six_percent(self):
        spread = Spread()
        for value in range(1, 1001):
            spread.add(value / 100)
        assert spread.quantile(0.5) == pytest.approx(5.0, rel=0.06)
        assert spread.quantile(0.99) == pytest.approx(9.9, rel=0.06)
        assert spread.quantile(1.0) == pytest.approx(10.0, rel=0.06)
        assert spread.mean == pytest.approx(5.005)

    def test_nothing_is_not_zero(self):
        assert (Spread().mean, Spread().quantile(0.5)) == (None, None)

    def test_no_number_and_what_is_below_nothing_are_left_out(self):
        spread = Spread()
        for value in (math.nan, math.inf, -1.0):
            spread.add(value)
        assert spread.count == 0

    def test_zero_and_what_is_huge_have_their_place(self):
        spread = Spread()
        spread.add(0.0)
        spread.add(1e9)
        assert spread.quantile(0.5) == 0.0
        assert spread.greatest == 1e9
        assert (spread.quantile(1.0) or 0) > 10_000  # the last bucket, which has no end

    def test_a_level_past_all_gives_the_greatest(self):
        spread = Spread()
        spread.add(2.0)
        assert spread.quantile(1.5) == 2.0

    def test_two_add_up(self):
        one, two = Spread(), Spread()
        one.add(1.0)
        two.add(3.0)
        two.add(1.0)
        whole = merged([one, two])
        assert (whole.count, whole.total, whole.greatest) == (3, 5.0, 3.0)


class TestRings:
    def test_a_bucket_is_made_when_it_is_needed_and_goes_when_it_is_old(self):
        ring: Ring[list[int]] = Ring(10.0, 3, list)
        for at_s in (5.0, 6.0, 25.0):
            cell = ring.at(at_s)
            assert cell is not None
            cell.append(1)
        assert sorted(map(len, ring.over(25.0, 30.0))) == [1, 2]
        assert [len(cell) for cell in ring.over(25.0, 10.0)] == [1]
        assert [(at, cell) for at, cell in ring.series(25.0, 3)] == [
            (0.0, [1, 1]), (10.0, None), (20.0, [1]),
        ]  # fmt: skip
        ring.at(35.0)
        assert ring.at(5.0) is None
        assert [at for at, cell in ring.series(35.0, 4) if cell is not None] == [20.0, 30.0]

    def test_what_is_too_old_for_the_fine_ring_counts_in_the_coarse_one(self):
        rings: TwoRings[list[int]] = TwoRings(list)
        assert len(list(rings.at(100_000.0))) == 2
        assert len(list(rings.at(80_000.0))) == 1
        assert len(list(rings.over(100_000.0, 3600.0))) == 1
        assert len(list(rings.over(100_000.0, 86_400.0))) == 2

    def test_windows_have_lengths(self):
        assert [one.length_s for one in Window] == [3600.0, 86_400.0, 604_800.0]


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


class TestHolding:
    def test_what_is_held_is_counted_up_to_now(self):
        book = HoldingBook()
        book.loaded(A, 100.0, size_bytes=GB, gpu_share=0.5)
        assert book.held(A, 400.0, 3600.0) == Held(resident_s=300.0, byte_s=300.0 * GB, gpu_s=150.0)
        book.unloaded(A, 500.0)
        assert not book.is_resident(A)
        held = book.held_by_all(9000.0, 86_400.0)
        assert (held.resident_s, held.gpu_s) == (400.0, 200.0)
        assert book.held(B, 9000.0, 3600.0) == Held()

    def test_a_size_that_is_known_later_counts_from_then_and_stays_known(self):
        book = HoldingBook()
        book.loaded(A, 0.0, size_bytes=None, gpu_share=None)
        book.loaded(A, 100.0, size_bytes=GB, gpu_share=1.0)
        book.loaded(A, 150.0, size_bytes=None, gpu_share=None)
        held = book.held(A, 200.0, 3600.0)
        assert (held.resident_s, held.byte_s, held.gpu_s) == (200.0, 100.0 * GB, 100.0)

    def test_the_strip_shows_requests_and_residency_by_bucket(self):
        book = HoldingBook()
        for at_s in (10.0, 20.0, 310.0):
            book.arrived(A, at_s)
        book.loaded(B, 150.0, size_bytes=GB, gpu_share=None)
        book.unloaded(B, 450.0)
        rows = book.strip(599.0, step_s=FINE_S, count=3)
        assert [(row.model, row.arrivals, row.resident_ratio) for row in rows] == [
            (A, (0, 2, 1), (0.0, 0.0, 0.0)),
            (B, (0, 0, 0), (0.0, 0.5, 0.5)),
        ]
        wider = book.strip(899.0, step_s=3 * FINE_S, count=1)
        assert [(row.arrivals, row.resident_ratio) for row in wider] == [
            ((3,), (0.0,)), ((0,), (0.333,)),
        ]  # fmt: skip
        coarse = book.strip(599.0, step_s=COARSE_S, count=1)
        assert [row.arrivals for row in coarse] == [(3,), (0,)]

    def test_what_is_older_than_the_ring_is_left_out_however_long_it_was(self):
        book = HoldingBook()
        book.loaded(A, 0.0, size_bytes=1, gpu_share=None)
        book.unloaded(A, 40 * 86_400.0)
        (row,) = book.strip(40 * 86_400.0, step_s=FINE_S, count=FINE_KEPT)
        assert sum(row.resident_ratio) == pytest.approx(FINE_KEPT - 1)
        book.arrived(A, 0.0)  # far too late
        book.arrived(A, 40 * 86_400.0)
        (row,) = book.strip(40 * 86_400.0, step_s=FINE_S, count=1000)
        assert (len(row.arrivals), sum(row.arrivals)) == (FINE_KEPT, 1)
        track = book._models[A].timelines[0]
        track.hold(100.0, 200.0, 1, 0.0)  # a stretch that was told too late
        assert track.held(40 * 86_400.0, FINE_S).resident_s == 0.0

    def test_past_the_bound_a_model_goes(self):
        book = HoldingBook(max_models=1)
        book.arrived(A, 0.0)
        book.arrived(B, 0.0)
        assert (book.forgotten, [row.model for row in book.strip(0.0, step_s=FINE_S, count=1)]) == (
            1, [B],
        )  # fmt: skip


class TestPriorities:
    def ahead(self, *events: AnyEvent) -> list[WentAhead]:
        watch = PriorityWatch()
        return [one for event in events if (one := watch.observe(event)) is not None]

    def test_one_that_goes_before_an_earlier_one_of_a_higher_class_is_a_violation(self):
        assert self.ahead(
            received("high", 0.0), received("low", 1.0, A, LOW), sent("low", 2.0)
        ) == [WentAhead(priority=LOW, is_aged=False)]

    def test_one_that_had_come_before_is_aged(self):
        assert self.ahead(
            received("low", 0.0, A, LOW), received("high", 1.0), sent("low", 2.0)
        ) == [WentAhead(priority=LOW, is_aged=True)]

    def test_order_other_models_ends_and_what_came_at_the_same_moment_are_none(self):
        assert not self.ahead(
            received("high", 0.0), received("low", 1.0, A, LOW), sent("high", 2.0),
            received("low0", 2.0, A, LOW), sent("low", 2.0), sent("low0", 2.0),
            received("other", 0.0, B), received("mid", 1.0, A, MIDDLE), sent("mid", 2.0),
            received("gone", 3.0), received("low2", 3.0, A, LOW), left("gone", 3.5),
            sent("low2", 4.0),
            received("low3", 5.0, A, LOW), received("late", 5.9), sent("low3", 6.0),
            sent("unknown", 7.0), received("none", 8.0, None), sent("none", 8.0, None), UNRELATED,
        )  # fmt: skip

    def test_an_id_that_comes_again_is_the_newer_and_past_the_bound_none_is_watched(
        self, monkeypatch
    ):
        monkeypatch.setattr(violations_module, "_MOST_OPEN", 2)
        assert not self.ahead(
            received("x", 0.0), received("x", 5.0, A, MIDDLE), received("y", 5.0),
            received("low", 6.0, A, LOW), sent("x", 7.0),
        )  # fmt: skip


def reading(at_s: float, *, power_w: float | None = None, used: int | None = 45) -> ProbeReading:
    gpus = (
        GpuReading(uuid="g", power_watts=power_w),
        GpuReading(uuid="part", power_watts=power_w, parent_uuid="g"),
    )
    return ProbeReading(
        at_s=at_s, gpu_utilization_ratio=0.5, gpu_memory_used_bytes=used,
        gpu_memory_total_bytes=50, load_average_15min=2.0, gpus=gpus,
    )  # fmt: skip


class TestPanels:
    def test_there_are_six_with_their_thresholds(self):
        assert [(panel.title, panel.threshold) for panel in PANELS] == [
            ("GPU Utilization", 85.0), ("VRAM Usage", 90.0), ("CPU Load", 4.0),
            ("Queue Lengths", None), ("Model Load Times", None), ("Scheduling Decisions", None),
        ]  # fmt: skip

    def value(self, book: PanelBook, name: str, now_s: float = 59.0) -> float | None:
        return book.series(name, now_s, step_s=MINUTE_S, count=1)[0][1]

    def test_of_several_nodes_the_worst_is_shown_and_means_are_of_what_was_told(self):
        book = PanelBook()
        book.read(NODE, reading(0.0), 0.0)
        book.read(NODE, ProbeReading(at_s=5.0, gpu_utilization_ratio=0.7), 5.0)
        book.read(NodeId("m"), ProbeReading(at_s=5.0, gpu_utilization_ratio=0.1), 5.0)
        assert self.value(book, "gpu.utilization") == pytest.approx(60.0)
        assert self.value(book, "gpu.memory.used") == 90.0
        assert self.value(book, "cpu.load_15min") == 2.0
        assert self.value(book, "gpu.utilization", 200.0) is None
        quarter = book.series("gpu.utilization", 59.0, step_s=QUARTER_S, count=2)
        assert [begin for begin, _ in quarter] == [-900.0, 0.0]

    def test_queues_decisions_and_loads(self):
        book = PanelBook()
        for at_s, waiting in ((0.0, 2), (1.0, 4)):
            queues = (QueueStatus(priority=HIGH, waiting=waiting),)
            book.queued(queues, at_s)
        book.decided(1.0)
        book.load_took(3.0, 1.0)
        assert self.value(book, "queue.realtime") == 3.0
        assert self.value(book, "queue.batch") is None
        assert self.value(book, "scheduler.decisions_per_second") == 1.0
        assert self.value(book, "model.load_duration.p95") == pytest.approx(3.0, rel=0.06)
        book.queued((), 500.0)  # nobody looked for a while: it is not known how many came
        assert self.value(book, "scheduler.decisions_per_second", 500.0) is None

    def test_energy_is_power_over_the_time_that_it_was_watched(self):
        book = PanelBook()
        assert book.energy_of(0.0, 3600.0) is None
        assert book.read(NODE, reading(0.0), 0.0) is None
        assert book.read(NODE, reading(0.0, power_w=100.0), 0.0) == 0.0
        assert book.read(NODE, reading(10.0, power_w=200.0), 10.0) == 1500.0
        assert book.read(NODE, reading(900.0, power_w=200.0), 900.0) == 0.0
        assert book.energy_of(900.0, 3600.0) == 1500.0
        old_s = 900.0 + 8 * 86_400.0
        book.read(NODE, reading(old_s, power_w=1.0), old_s)
        assert book.read(NODE, reading(901.0, power_w=1.0), 901.0) == 0.0
        assert book.energy_of(old_s, 3600.0) == 0.0

    def test_nodes_are_bounded(self, monkeypatch):
        monkeypatch.setattr(panels_module, "_MOST_NODES", 1)
        book = PanelBook()
        book.read(NODE, ProbeReading(at_s=0.0, load_average_15min=1.0), 0.0)
        assert book.read(NodeId("m"), reading(0.0, power_w=1.0), 0.0) is None
        assert self.value(book, "cpu.load_15min") == 1.0


class TestCounters:
    def test_only_what_happens_from_the_start_is_counted(self):
        counters = LiveCounters()
        ledger = KpiLedger(lambda _: 2.0)
        ledger.counters = counters
        before = (
            loaded(1.0), received("r", 1.0, stream=False), sent("r", 1.0), done("r", 2.0, 1.0),
            received("h", 0.0), received("l", 1.0, A, LOW), sent("l", 2.0), left("h", 2.0),
        )  # fmt: skip
        for event in before:
            ledger.observe(event)
        counters.start_at(10.0)
        for event in before:
            ledger.observe(event)
        assert (counters.judged, counters.loads, counters.violations) == ({}, {}, {})
        for event in (
            loaded(11.0, load_s=2.5), loaded(12.0, load_s=None), load_failed(13.0),
            unloaded(14.0), feedback("r", 1.0), feedback("r", 0.5), feedback("r", 0.0),
            received("s", 20.0, stream=False), sent("s", 20.0), done("s", 21.0, 1.0),
            received("t", 20.0, stream=False), sent("t", 20.0), done("t", 26.0, 6.0),
            received("high", 30.0), received("low", 31.0, A, LOW), sent("low", 32.0),
            left("high", 33.0), received("low2", 34.0, A, LOW), received("high2", 35.0),
            sent("low2", 36.0), UNRELATED,
        ):  # fmt: skip
            ledger.observe(event)
        assert counters.loads == {("demand", "loaded"): 2, ("demand", "failed"): 1}
        assert (counters.unloads, sum(counters.load_buckets), counters.load_sum_s) == (
            {"evicted": 1}, 1, 2.5,
        )  # fmt: skip
        assert counters.load_buckets[2] == 1  # up to three seconds
        assert counters.feedback == {"good": 1, "middling": 1, "bad": 1}
        assert counters.judged == {("a", "realtime", "met"): 1, ("a", "realtime", "missed"): 1}
        assert (counters.violations, counters.aged) == ({"background": 1}, {"background": 1})

    def test_energy_is_counted_by_node(self):
        counters = LiveCounters()
        counters.used_energy(NODE, 5.0, 1.0)
        counters.start_at(10.0)
        for used_j, at_s in ((5.0, 1.0), (None, 11.0), (5.0, 11.0), (7.0, 12.0)):
            counters.used_energy(NODE, used_j, at_s)
        assert counters.energy_j == {NODE: 12.0}

    def test_models_share_a_label_past_the_bound(self, monkeypatch):
        monkeypatch.setattr(counters_module, "MAX_MODELS", 1)
        counters = LiveCounters()
        counters.start_at(0.0)
        for model in (A, B, A):
            counters.ended(
                Journey(
                    request_id=RequestId("r"),
                    model=model,
                    operation="",
                    priority=HIGH,
                    stream=False,
                    received_at_s=0.0,
                    ended_at_s=1.0,
                    met=True,
                )
            )
        assert counters.judged == {("a", "realtime", "met"): 2, (OTHER, "realtime", "met"): 1}


class TestLedger:
    def world(self, *statuses: ModelStatus, **changes: Any) -> WorldSnapshot:
        node = NodeStatus(node=NODE, alive=True, memory_total_bytes=10 * GB, **changes)
        return WorldSnapshot(
            taken_at_s=0.0, nodes={NODE: node}, models={one.model: one for one in statuses}
        )

    def status(self, residency=Residency.HOT, since_s=0.0, **changes: Any) -> ModelStatus:
        values = {"footprint_bytes": 2 * GB, **changes}
        return ModelStatus(
            model=A, node=NODE, residency=residency, residency_since_s=since_s, **values
        )

    def test_the_world_corrects_what_no_event_told(self):
        ledger = KpiLedger(lambda _: 2.0)
        ledger.saw(self.world(self.status(since_s=100.0)), 200.0)
        ledger.saw(self.world(self.status(since_s=100.0)), 300.0)
        held = ledger.holding.held(A, 300.0, 3600.0)
        assert (held.resident_s, held.gpu_s) == (200.0, 40.0)
        ledger.saw(self.world(self.status(Residency.COLD, 400.0)), 500.0)
        ledger.saw(self.world(self.status(Residency.COLD, 400.0)), 600.0)
        assert ledger.holding.held(A, 600.0, 3600.0).resident_s == 300.0

    @pytest.mark.parametrize(
        ("changes", "size"),
        [({"accelerator": "cpu"}, GB), ({}, None)],
    )
    def test_without_a_gpu_or_a_size_no_gpu_is_held(self, changes, size):
        ledger = KpiLedger(lambda _: 2.0)
        ledger.saw(self.world(self.status(footprint_bytes=size), **changes), 100.0)
        assert ledger.holding.held(A, 200.0, 3600.0).gpu_s == 0.0

    def test_events_tell_residency_heat_loads_and_readings(self):
        ledger = KpiLedger(lambda _: 2.0)
        ledger.counters.start_at(0.0)
        observed = NodeObserved(
            **told(30.0), node=NODE, resident=(), busy=(), memory_total_bytes=4 * GB,
            memory_used_bytes=None, model_limit=None, reading=reading(30.0, power_w=10.0),
        )  # fmt: skip
        silent = NodeObserved(
            **told(30.0), node=NODE, resident=(), busy=(), memory_total_bytes=None,
            memory_used_bytes=None, model_limit=None,
        )  # fmt: skip
        for event in (
            observed, silent, received("r", 1.0), received("none", 1.0, None),
            loaded(10.0, size=GB), loaded(15.0, B, load_s=None), unloaded(20.0),
        ):  # fmt: skip
            ledger.observe(event)
        ledger.decided(30.0)
        rows = ledger.holding.strip(59.0, step_s=FINE_S, count=1)
        assert [(row.model, row.arrivals) for row in rows] == [(A, (1,)), (B, (0,))]
        held = ledger.holding.held(A, 59.0, 3600.0)
        assert (held.resident_s, held.gpu_s) == (10.0, 2.5)  # a quarter of its node's memory
        load = ledger.panels.series("model.load_duration.p95", 59.0, step_s=MINUTE_S, count=1)
        assert load[0][1] == pytest.approx(4.0, rel=0.06)
        assert ledger.counters.energy_j == {NODE: 0.0}
        assert set(ledger.forgotten()) == {"open_requests", "traffic", "loads", "holdings"}

    def test_a_budget_is_of_the_week_and_heads_somewhere(self):
        ledger = KpiLedger(lambda _: 2.0)
        for number in range(100):
            name, took_s = f"r{number}", 6.0 if number < 4 else 1.0
            for event in (
                received(name, 0.0, stream=False), sent(name, 0.0), done(name, 10.0, took_s),
            ):  # fmt: skip
                ledger.observe(event)
        found = ledger.budget_of(A, 95.0, 60.0, expected_1h=10.0)
        assert (found.judged, found.missed) == (100, 4)
        assert found.remaining_ratio == pytest.approx(0.2)
