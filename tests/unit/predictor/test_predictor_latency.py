"""How long requests take: the recent values, the regression on the load, and what is said."""

from __future__ import annotations

import json
import math
import random
from dataclasses import replace

import pytest

from contracts.config import PredictorConfig
from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    LoadCause,
    ModelLoaded,
    PriorityClass,
    RequestCancelled,
    RequestCompleted,
    RequestDispatched,
    RequestPhase,
    RequestReceived,
)
from contracts.forecasts import Signal
from contracts.ids import ModelId, NodeId, RequestId
from predictor.engine import PredictorEngine
from predictor.latency_book import LatencyBook
from predictor.models.latency import (
    RECENT,
    REGRESSION,
    LoadRegression,
    ModelLatency,
    RecentValues,
    RequestLoad,
    SignalLatency,
    pinball,
)
from predictor.open_requests import OpenRequests

CHAT = ModelId("chat")
START_S = 1_000_000.0
IDLE = RequestLoad(0, None)


def test_recent_values_are_told_as_they_were() -> None:
    values = RecentValues()
    for value in range(1, 101):
        values.add(float(value))

    assert len(values) == 64
    assert values.mean == pytest.approx(68.5)
    assert values.quantiles() == (43.0, 69.0, 94.0, 100.0)


def test_a_regression_knows_long_prompts_and_full_servers_from_short_and_idle() -> None:
    signal, rng = SignalLatency(), random.Random(1)
    inside = scored = 0
    for step in range(1000):
        load = RequestLoad(rng.randrange(16), float(rng.choice((50, 400, 3000))))
        took_s = (0.05 + 0.0004 * (load.input_tokens or 0.0)) * (1.0 + 0.1 * load.in_flight)
        took_s *= math.exp(rng.gauss(0.0, 0.1))
        said = signal.forecast(load)
        if step >= 400 and said is not None:
            inside += said.quantiles[0] <= took_s <= said.quantiles[2]
            scored += 1
        signal.add(load, took_s)
    short, long = signal.forecast(RequestLoad(0, 50.0)), signal.forecast(RequestLoad(12, 3000.0))

    assert short is not None
    assert long is not None
    assert long.method == REGRESSION
    assert long.quantiles[1] > 8.0 * short.quantiles[1]
    assert long.loss is not None
    assert long.floor_loss is not None
    assert long.loss < 0.5 * long.floor_loss
    assert inside / scored == pytest.approx(0.8, abs=0.06)
    assert long.coverage == pytest.approx(0.9, abs=0.06)
    assert long.band_coverage == pytest.approx(0.8, abs=0.08)


def test_where_the_regression_loses_the_recent_values_are_told() -> None:
    signal = SignalLatency()
    assert signal.forecast(IDLE) is None
    for _ in range(30):
        signal.add(IDLE, 2.0)
        signal._score((9.0, 9.0, 9.0, 9.0), 2.0)
    said = signal.forecast(IDLE)

    assert said is not None
    assert said.degraded
    assert said.method == RECENT
    assert said.quantiles == (2.0, 2.0, 2.0, 2.0)


def test_what_cannot_be_is_left_out() -> None:
    signal = SignalLatency()
    for value in (math.nan, math.inf, -1.0):
        signal.add(IDLE, value)
    assert signal.forecast(IDLE) is None
    for value in (0.0, 0.0, 1e9):
        signal.add(None, value)
    said = signal.forecast(IDLE)

    assert said is not None
    assert said.quantiles == (0.0, 0.0, 1e9, 1e9)
    assert not said.ready


@pytest.mark.case("P124")
def test_raw_and_great_numbers_never_leave_what_was_seen() -> None:
    signal, rng = SignalLatency(), random.Random(3)
    largest = 0.0
    for step in range(1000):
        load = RequestLoad(rng.randrange(64), float(rng.randrange(1, 2_000_000)))
        took_s = math.exp(rng.uniform(math.log(0.01), math.log(600.0)))
        largest = max(largest, took_s)
        signal.add(load, took_s)
        said = signal.forecast(RequestLoad(10**9, START_S * 1e6 + step))
        assert said is not None
        values = [said.mean, *said.quantiles]
        assert all(math.isfinite(value) and 0.0 <= value <= 10.0 * largest for value in values)
        assert list(said.quantiles) == sorted(said.quantiles)
        json.dumps(said.quantiles, allow_nan=False)


@pytest.mark.case("P124")
def test_a_regression_that_runs_away_is_started_afresh_and_that_is_counted() -> None:
    regression = LoadRegression()
    assert regression.expected(IDLE) is None
    regression.learn(IDLE, None, 2.0)
    regression._model.intercept = math.nan

    assert regression.expected(IDLE) is None
    assert regression.resets == 1
    assert regression.quantiles(0.0)[1] == pytest.approx(1.0)


def test_a_cold_request_waits_for_the_load_and_the_first_content() -> None:
    page = ModelLatency()
    assert page.cold_wait_s(IDLE) is None
    page.add(Signal.LOAD_S, None, 8.0)
    assert page.cold_wait_s(IDLE) == 8.0
    page.add(Signal.TTFT_S, IDLE, 0.5)

    assert page.cold_wait_s(IDLE) == 8.5
    page.add_request(input_tokens=None, output_tokens=None, service_s=math.nan)
    assert page.per_request() == {}
    assert page.resets == 0


def test_pinball_is_nothing_where_all_is_right() -> None:
    assert pinball((3.0, 3.0, 3.0, 3.0), 3.0) == 0.0
    assert pinball((2.0, 2.0, 2.0, 2.0), 3.0) == pytest.approx((0.1 + 0.5 + 0.9 + 0.99) / 4)


def test_requests_that_run_are_counted_by_model_and_bounded() -> None:
    running = OpenRequests()
    for number in range(3):
        running.begin(RequestId(str(number)), CHAT)
    running.begin(RequestId("0"), CHAT)  # told twice
    last = running.get(RequestId("2"))
    assert last is not None
    assert last.in_flight == 2
    assert running.in_flight(CHAT) == 3
    for number in range(3):
        assert running.end(RequestId(str(number))) is not None
    assert running.end(RequestId("0")) is None
    assert running.in_flight(CHAT) == 0
    for number in range(20_005):
        running.begin(RequestId(f"r{number}"), CHAT)

    assert running.overflowed == 5
    assert running.in_flight(CHAT) == 20_000
    running.clear()
    assert running.in_flight(CHAT) == 0


def call(number: int, at_s: float, took_s: float, *, cold: bool = False) -> list[AnyEvent]:
    """One streamed request with all its events."""
    request = RequestId(f"r{number}")

    def stamp(what: str, when_s: float) -> dict[str, object]:
        return {"event_id": f"{number}{what}", "at_s": when_s, "source": "test"}

    return [
        RequestReceived(
            **stamp("r", at_s),  # type: ignore[arg-type]  # the fields that all events have
            request_id=request,
            model=CHAT,
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="c",
            stream=True,
        ),
        RequestDispatched(
            **stamp("d", at_s),  # type: ignore[arg-type]  # the fields that all events have
            request_id=request,
            model=CHAT,
            node=NodeId("n"),
            queue_wait_s=0.0,
            cold=cold,
        ),
        FirstTokenSent(
            **stamp("f", at_s + took_s / 4),  # type: ignore[arg-type]  # as above
            request_id=request,
            model=CHAT,
            ttft_s=took_s / 4,
        ),
        RequestCompleted(
            **stamp("c", at_s + took_s),  # type: ignore[arg-type]  # as above
            request_id=request,
            model=CHAT,
            status=200,
            duration_s=took_s,
            service_s=took_s,
            input_tokens=100,
            output_tokens=50,
        ),
    ]


def test_what_another_model_answered_says_nothing_of_the_one_that_was_asked_for() -> None:
    engine, told = PredictorEngine(PredictorConfig()), PredictorEngine(PredictorConfig())
    for number in range(20):
        for event in call(number, START_S + 60.0 * number, 2.0):
            told.observe(event)
            if isinstance(event, RequestCompleted):
                engine.observe(replace(event, served_by=ModelId("chat--headstart-cpu")))
            else:
                engine.observe(event)

    assert Signal.DURATION_S in told.latency(CHAT)
    assert engine.latency(CHAT) == {}


def test_what_is_published_holds_for_the_load_of_the_moment() -> None:
    engine, number = PredictorEngine(PredictorConfig()), 0
    for round_ in range(60):
        # By turns one alone, and eight at once that are three times as slow.
        alone = round_ % 2 == 0
        together: list[AnyEvent] = []
        for shot in range(1 if alone else 8):
            at_s = START_S + 60.0 * round_ + 0.01 * shot
            together += call(number, at_s, 2.0 if alone else 2.0 + 0.6 * shot)
            number += 1
        for event in sorted(together, key=lambda event: event.at_s):
            engine.observe(event)
    idle, full = engine.latency(CHAT, in_flight=0), engine.latency(CHAT, in_flight=7)
    (forecast,) = engine.tick(START_S + 3700.0)
    duration = forecast.signal(Signal.DURATION_S)

    assert full[Signal.DURATION_S].quantiles[1] > 2.0 * idle[Signal.DURATION_S].quantiles[1]
    assert duration is not None
    assert duration.horizons[0].quantiles == idle[Signal.DURATION_S].quantiles
    assert engine.latency(CHAT, input_tokens=10**7)[Signal.TTFT_S].quantiles[3] < 100.0
    assert engine.latency(ModelId("other")) == {}
    assert PredictorEngine(PredictorConfig(), signals=False).latency(CHAT) == {}


def test_a_cold_request_teaches_nothing_about_warm_ones() -> None:
    engine = PredictorEngine(PredictorConfig())
    for number in range(10):
        for event in call(number, START_S + 60.0 * number, 2.0, cold=False):
            engine.observe(event)
    for event in call(10, START_S + 600.0, 40.0, cold=True):
        engine.observe(event)
    engine.observe(
        ModelLoaded(
            event_id="l",
            at_s=START_S + 610.0,
            source="test",
            model=CHAT,
            node=NodeId("n"),
            cause=LoadCause.DEMAND,
            load_s=30.0,
            footprint_bytes=None,
        )
    )
    (forecast,) = engine.tick(START_S + 700.0)

    assert engine.latency(CHAT)[Signal.DURATION_S].quantiles[3] < 5.0
    assert forecast.cold_wait_s == pytest.approx(30.5)


def test_what_was_not_seen_to_begin_or_was_broken_off_says_little() -> None:
    engine = PredictorEngine(PredictorConfig())
    received, dispatched, first, done = call(0, START_S, 4.0)
    engine.observe(received)
    engine.observe(
        RequestCancelled(
            event_id="x",
            at_s=START_S + 1.0,
            source="test",
            request_id=RequestId("r0"),
            model=CHAT,
            phase=RequestPhase.STREAMING,
            duration_s=1.0,
        )
    )
    engine.observe(dispatched)
    assert engine.latency(CHAT) == {}
    engine.observe(first)
    engine.observe(done)

    assert set(engine.latency(CHAT)) == {Signal.TTFT_S, Signal.DURATION_S, Signal.TOKENS_PER_S}
    assert engine.latency(CHAT)[Signal.TTFT_S].method == RECENT
    assert engine.resets == 0


def test_answers_at_once_and_errors_and_what_nobody_began() -> None:
    engine = PredictorEngine(PredictorConfig())
    received, dispatched, _, done = call(0, START_S, 4.0, cold=True)
    assert isinstance(done, RequestCompleted)
    assert isinstance(received, RequestReceived)
    engine.observe(dispatched)  # nobody told that it came
    engine.observe(received)
    engine.observe(replace(done, output_tokens=0, input_tokens=None))
    engine.observe(replace(done, event_id="e", status=500))
    engine.observe(replace(done, event_id="m", model=None))

    assert set(engine.latency(CHAT)) == {Signal.DURATION_S}
    engine.tick(START_S + 10.0)
    engine.observe(replace(received, event_id="n", request_id=RequestId("n"), at_s=START_S + 11.0))
    engine.tick(START_S - 7200.0)
    assert engine._latency is not None
    assert engine._latency._open.in_flight(CHAT) == 0


def test_names_that_a_client_made_up_leave_no_page() -> None:
    engine = PredictorEngine(PredictorConfig(max_models=2))
    for number in range(50):
        request = RequestId(f"q{number}")
        name = ModelId(f"junk-{number}")
        engine.observe(
            RequestReceived(
                event_id=f"q{number}",
                at_s=START_S + number,
                source="test",
                request_id=request,
                model=name,
                operation="chat",
                priority=PriorityClass.REALTIME,
                client="c",
                stream=False,
            )
        )
        engine.observe(
            RequestCompleted(
                event_id=f"e{number}",
                at_s=START_S + number + 0.5,
                source="test",
                request_id=request,
                model=name,
                status=404,
                duration_s=0.01,
                service_s=0.01,
                input_tokens=None,
                output_tokens=None,
            )
        )

    assert engine.models == ()
    assert engine.latency(ModelId("junk-1")) == {}


def test_work_is_what_the_arrivals_amount_to() -> None:
    engine = PredictorEngine(PredictorConfig())
    for number in range(30):
        for event in call(number, START_S + 20.0 * number, 4.0):
            engine.observe(event)
    engine.tick(START_S + 600.0)
    (forecast,) = engine.tick(START_S + 610.0)
    arrivals, tokens, answers, running = (
        forecast.signal(signal)
        for signal in (
            Signal.ARRIVALS,
            Signal.INPUT_TOKENS,
            Signal.OUTPUT_TOKENS,
            Signal.CONCURRENCY,
        )
    )

    assert arrivals is not None
    assert tokens is not None
    assert answers is not None
    assert running is not None
    for came, brought, said, ran in zip(
        arrivals.horizons, tokens.horizons, answers.horizons, running.horizons, strict=True
    ):
        assert brought.quantiles == pytest.approx([100.0 * count for count in came.quantiles])
        assert said.mean == pytest.approx(50.0 * came.mean)
        assert ran.mean == pytest.approx(4.0 * came.mean / came.horizon_s)
        assert ran.loss is None


def test_a_request_of_a_model_without_a_page_is_nobody_s() -> None:
    book = LatencyBook()
    ended = RequestCompleted(
        event_id="e1",
        at_s=START_S,
        source="g",
        request_id=RequestId("r1"),
        model=CHAT,
        status=200,
        duration_s=1.0,
        service_s=1.0,
        input_tokens=1,
        output_tokens=1,
    )
    book.observe(ended)
    assert book.cold_wait_s(CHAT) is None
