from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from contracts.config import PredictorConfig
from contracts.events import (
    FirstTokenSent,
    IntentKind,
    IntentSignal,
    LoadCause,
    ModelLoaded,
    Origin,
    RequestCompleted,
    RequestFailed,
    RequestReceived,
)
from contracts.forecasts import (
    HORIZONS_S,
    NEXT_USE_GRID_S,
    ForecastStatus,
    ModelForecast,
    NextUse,
    Signal,
)
from contracts.ids import ModelId, NodeId, RequestId
from predictor.engine import PredictorEngine

CRON = ModelId("cron")
CHAT = ModelId("chat")
START_S = 1_000_000.0 - 1_000_000.0 % 3600.0

Received = Callable[..., RequestReceived]
Drive = Callable[..., tuple[ModelForecast, ...]]


def curves_only(max_models: int = 5000) -> PredictorEngine:
    return PredictorEngine(PredictorConfig(max_models=max_models), signals=False)


def curve(engine: PredictorEngine, model: ModelId, now_s: float) -> NextUse:
    next_use = engine.next_use(model, now_s)
    assert next_use is not None
    return next_use


def completed(model: ModelId, at_s: float, status: int = 200, tokens: int = 40) -> RequestCompleted:
    return RequestCompleted(
        event_id=f"{model}!{at_s}",
        at_s=at_s,
        source="test",
        request_id=RequestId("r"),
        model=model,
        status=status,
        duration_s=3.0,
        service_s=2.0,
        input_tokens=None,
        output_tokens=tokens,
    )


def not_found(model: ModelId, at_s: float) -> RequestFailed:
    return RequestFailed(
        event_id=f"{model}?{at_s}",
        at_s=at_s,
        source="test",
        request_id=RequestId("r"),
        model=model,
        status=404,
        error="http_404",
        origin=Origin.CLIENT,
        duration_s=0.01,
    )


def first_token(model: ModelId, at_s: float, ttft_s: float) -> FirstTokenSent:
    return FirstTokenSent(
        event_id=f"t{at_s}",
        at_s=at_s,
        source="test",
        request_id=RequestId("r"),
        model=model,
        ttft_s=ttft_s,
    )


def loaded(model: ModelId, at_s: float, load_s: float | None) -> ModelLoaded:
    return ModelLoaded(
        event_id=f"l{at_s}",
        at_s=at_s,
        source="test",
        model=model,
        node=NodeId("n"),
        cause=LoadCause.DEMAND,
        load_s=load_s,
        footprint_bytes=None,
    )


def test_a_caller_that_comes_every_five_minutes_is_expected_then_and_not_before(
    drive: Drive,
) -> None:
    engine, rng = curves_only(), random.Random(1)
    others = [(START_S + 20_000.0 * rng.random(), f"m{rng.randrange(8)}") for _ in range(400)]
    calls = [(START_S + 300.0 * call + rng.uniform(-4.0, 4.0), str(CRON)) for call in range(1, 61)]
    last_s = calls[-1][0]
    drive(engine, calls + others, last_s + 10.0)

    after = curve(engine, CRON, last_s + 10.0)
    before = curve(engine, CRON, last_s + 285.0)
    assert after.probability_between(last_s + 10.0, 0.0, 30.0) < 0.05
    assert before.probability_between(last_s + 285.0, 0.0, 30.0) > 0.9
    assert after.status is ForecastStatus.READY


def test_a_caller_in_bursts_is_known_by_its_period_all_the_same(drive: Drive) -> None:
    engine, rng = curves_only(), random.Random(2)
    calls = [
        (START_S + 420.0 * call + 2.0 * shot + rng.random(), str(CRON))
        for call in range(1, 80)
        for shot in range(rng.randrange(1, 5))
    ]
    last_s = max(calls)[0]
    drive(engine, calls, last_s + 60.0)

    lull = curve(engine, CRON, last_s + 60.0)
    due = curve(engine, CRON, last_s + 400.0)
    assert lull.probability_between(last_s + 60.0, 0.0, 60.0) < 0.05
    assert due.probability_between(last_s + 400.0, 0.0, 30.0) > 0.8


def test_a_job_of_cron_shows_through_other_callers_of_the_same_model(drive: Drive) -> None:
    engine, rng = curves_only(), random.Random(3)
    hours = 30
    people = [(START_S + hours * 3600.0 * rng.random(), str(CHAT)) for _ in range(4 * hours)]
    cron = [(START_S + 900.0 * run + 3.0 + rng.random(), str(CHAT)) for run in range(4 * hours)]
    end_s = START_S + hours * 3600.0
    drive(engine, people + cron, end_s - 45.0)

    due = curve(engine, CHAT, end_s - 45.0).probability_between(end_s - 45.0, 0.0, 60.0)
    idle = curve(engine, CHAT, end_s - 400.0).probability_between(end_s - 400.0, 0.0, 60.0)
    assert due > 0.7
    assert idle < 0.3


def test_requests_without_any_habit_get_about_their_true_hazard(received: Received) -> None:
    engine, rng = curves_only(), random.Random(4)
    by_model = {
        f"m{model}": sorted(START_S + 60_000.0 * rng.random() for _ in range(200))
        for model in range(4)
    }
    waiting = sorted((at_s, model) for model, times in by_model.items() for at_s in times)
    foretold, came = 0.0, 0
    for step in range(5_900):
        now_s = START_S + 10.0 * step
        while waiting and waiting[0][0] <= now_s:
            at_s, model = waiting.pop(0)
            engine.observe(received(model, at_s))
        for forecast in engine.tick(now_s):
            assert forecast.next_use is not None
            if step > 2_000:
                foretold += forecast.next_use.probability_between(now_s, 0.0, 60.0)
                came += any(now_s < at_s <= now_s + 60.0 for at_s in by_model[forecast.model])

    assert foretold == pytest.approx(came, rel=0.15)
    assert foretold == pytest.approx(-math.expm1(-60.0 / 300.0) * 3_900 * 4, rel=0.2)


def intent(at_s: float) -> IntentSignal:
    return IntentSignal(
        event_id=f"i{at_s}",
        at_s=at_s,
        source="test",
        client="c",
        kind=IntentKind.MODELS_LISTED,
        model=None,
    )


def test_a_model_that_falls_silent_is_let_go_of(drive: Drive) -> None:
    engine, rng = curves_only(), random.Random(5)
    calls = [(START_S + 60.0 * call + 20.0 * rng.random(), str(CHAT)) for call in range(200)]
    others = [(START_S + 60_000.0 * rng.random(), "other") for _ in range(200)]
    drive(engine, calls + others, START_S + 12_000.0)
    busy = curve(engine, CHAT, START_S + 12_000.0)
    drive(engine, [(START_S + 12_010.0, "other")], START_S + 40_000.0)
    silent = curve(engine, CHAT, START_S + 40_000.0)

    assert busy.probability_between(START_S + 12_000.0, 0.0, 60.0) > 0.5
    assert silent.probability_between(START_S + 40_000.0, 0.0, 60.0) < 0.02


def test_a_new_model_gets_the_population_s_curve_and_not_zero(drive: Drive) -> None:
    engine = curves_only()
    drive(engine, [(START_S + 30.0 * call, "other") for call in range(50)], START_S + 1500.0)
    drive(engine, [(START_S + 1500.0, "new")], START_S + 1510.0)
    new = curve(engine, ModelId("new"), START_S + 1510.0)

    assert new.status is ForecastStatus.WARMING_UP
    assert new.probability_between(START_S + 1510.0, 0.0, 60.0) > 0.05
    assert engine.next_use(ModelId("never"), START_S) is None
    assert engine.forecast_now(ModelId("never"), START_S) is None


def test_the_same_events_give_the_same_forecasts(drive: Drive) -> None:
    rng = random.Random(6)
    arrivals = [(START_S + 5_000.0 * rng.random(), f"m{rng.randrange(5)}") for _ in range(300)]
    one, other = (PredictorEngine(PredictorConfig()) for _ in range(2))

    assert drive(one, arrivals, START_S + 5_000.0) == drive(other, arrivals, START_S + 5_000.0)


def test_forecasts_are_given_when_they_are_due_and_expire(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig(publish_s=10.0, expires_s=60.0))
    assert engine.tick(START_S) == ()
    engine.observe(received("chat", START_S + 1.0))

    assert engine.tick(START_S + 9.0) == ()
    (forecast,) = engine.tick(START_S + 10.0)
    assert forecast.next_use is not None
    assert forecast.next_use.made_at_s == START_S + 10.0
    assert forecast.next_use.expires_at_s == START_S + 70.0
    assert len(forecast.next_use.cumulative_hazard) == len(NEXT_USE_GRID_S)
    arrivals = forecast.signal(Signal.ARRIVALS)
    assert arrivals is not None
    assert tuple(horizon.horizon_s for horizon in arrivals.horizons) == HORIZONS_S
    assert arrivals.horizons[0].loss is None
    assert engine.tick(START_S + 11.0) == ()


def test_what_something_came_for_is_renewed_once(received: Received) -> None:
    engine = curves_only()
    engine.observe(received("chat", START_S))
    engine.observe(received("cron", START_S))
    engine.observe(received("chat", START_S + 1.0))

    waiting = [engine.has_renewals]
    assert {forecast.model for forecast in engine.renewals(START_S + 1.0)} == {CHAT, CRON}
    waiting.append(engine.has_renewals)
    assert waiting == [True, False]
    assert engine.renewals(START_S + 1.0) == ()


def test_who_follows_a_model_is_renewed_with_it(received: Received) -> None:
    engine = curves_only()
    for call in range(20):
        engine.observe(received("speech", START_S + 500.0 * call))
        engine.observe(received("chat", START_S + 500.0 * call + 4.0))
    engine.tick(START_S + 9_990.0)
    before = curve(engine, CHAT, START_S + 9_990.0)
    engine.observe(received("speech", START_S + 10_000.0))
    after = {forecast.model: forecast.next_use for forecast in engine.renewals(START_S + 10_000.0)}

    assert set(after) == {CHAT, ModelId("speech")}
    next_use = after[CHAT]
    assert next_use is not None
    assert next_use.cumulative_hazard[6] > before.cumulative_hazard[6]


def test_more_ids_than_it_keeps_are_forgotten_oldest_first(received: Received) -> None:
    engine = curves_only()
    for number in range(66_000):
        engine.observe(replace(intent(START_S), event_id=str(number)))

    assert not engine.observe(replace(intent(START_S), event_id="65999"))
    assert engine.observe(replace(intent(START_S), event_id="0"))


def test_room_grows_with_the_models_while_their_outcomes_are_awaited(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig(max_models=300))
    for number in range(200):
        engine.observe(received(f"m{number}", START_S + number))
        engine.tick(START_S + number)

    assert len(engine.tick(START_S + 300.0)) == 200
    assert engine.forgotten == 0


def test_a_doubled_event_counts_once(received: Received) -> None:
    once, twice = curves_only(), curves_only()
    for call in range(10):
        event = received("cron", START_S + 60.0 * call)
        once.observe(event)
        assert [twice.observe(event), twice.observe(event)] == [True, False]

    assert once.next_use(CRON, START_S + 600.0) == twice.next_use(CRON, START_S + 600.0)


def test_a_late_event_changes_no_gap_but_is_counted(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig())
    for at_s in (0.0, 60.0, 30.0):
        engine.observe(received("chat", START_S + at_s))
    next_use = curve(engine, CHAT, START_S + 70.0)
    engine.observe(received("chat", START_S - 2 * 86_400.0))

    assert next_use.last_arrival_at_s == START_S + 60.0
    assert engine.too_late == 1


def test_what_came_before_a_forecast_was_made_is_no_outcome_of_it(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig())
    for call in range(30):
        engine.observe(received("chat", START_S + 600.0 * call))
        engine.tick(START_S + 600.0 * call + 40.0)
        engine.observe(received("chat", START_S + 600.0 * call + 5.0, f"late {call}"))
        engine.tick(START_S + 600.0 * call + 110.0)
    next_use = curve(engine, CHAT, START_S + 30 * 600.0)

    assert next_use.floor_brier is not None
    assert next_use.floor_brier < 0.05  # within a minute of a look nothing ever came


def test_signs_make_no_model_known_and_drifts_are_counted() -> None:
    engine = PredictorEngine(PredictorConfig())
    engine.observe(intent(START_S))
    engine.observe(replace(intent(START_S), event_id="picked", model=CHAT))

    assert engine.models == ()
    assert engine.drifts == 0


def test_a_pick_is_noted_for_a_model_that_is_known(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig())
    engine.observe(received("chat", START_S))
    engine.observe(replace(intent(START_S + 1.0), model=CHAT))
    engine.observe(replace(intent(START_S + 1.0), event_id="listed"))
    curves = curves_only()
    curves.observe(intent(START_S))

    assert engine.tick(START_S + 10.0)[0].signals
    assert curves.models == ()


def test_a_step_back_ends_what_a_mad_clock_began(received: Received) -> None:
    engine = curves_only()
    engine.observe(received("chat", START_S))
    engine.tick(START_S)
    assert not engine.observe(received("chat", START_S + 1e8))
    engine.tick(START_S - 7200.0)

    assert not engine.observe(received("chat", START_S + 1e8, "again"))


@pytest.mark.parametrize("at_s", [math.nan, math.inf, -math.inf, -5.0])
def test_an_impossible_time_is_turned_away(received: Received, at_s: float) -> None:
    engine = curves_only()
    assert not engine.observe(received("chat", at_s))
    engine.advance(math.nan)

    assert engine.models == ()


def test_one_event_from_a_mad_clock_is_no_time_and_two_are(received: Received) -> None:
    engine = curves_only()
    engine.observe(received("chat", START_S))
    assert not engine.observe(received("chat", START_S + 1e8))
    assert engine.observe(received("chat", START_S + 10.0))
    assert not engine.observe(received("chat", START_S + 1e8, "again"))
    assert engine.observe(received("chat", START_S + 1e8 + 5.0))

    assert curve(engine, CHAT, START_S + 1e8 + 6.0).last_arrival_at_s == START_S + 1e8 + 5.0


def test_a_clock_that_is_set_back_leaves_no_future_behind(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig())
    for call in range(20):
        engine.observe(received("chat", START_S + 60.0 * call))
        engine.tick(START_S + 60.0 * call)
    engine.tick(START_S - 3600.0)
    engine.observe(received("chat", START_S - 3500.0))
    (forecast,) = engine.tick(START_S - 3490.0)

    assert engine.rewinds == 1
    assert forecast.next_use is not None
    assert forecast.next_use.last_arrival_at_s == START_S - 3500.0
    assert forecast.next_use.probability_between(START_S - 3490.0, 0.0, 60.0) > 0.5


def test_a_machine_that_slept_was_not_idle(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig())
    for call in range(600):
        engine.observe(received("chat", START_S + 10.0 * call))
        engine.tick(START_S + 10.0 * call)
    engine.tick(START_S + 6000.0 + 7200.0)
    (forecast,) = engine.tick(START_S + 6000.0 + 7210.0)
    arrivals = forecast.signal(Signal.ARRIVALS)

    assert arrivals is not None
    assert arrivals.horizons[3].mean > 30.0  # not the nothing of two unwatched hours


def test_beyond_its_bound_the_longest_unseen_model_is_forgotten(received: Received) -> None:
    engine = curves_only(max_models=100)
    for number in range(150):
        engine.observe(received(f"m{number}", START_S + number))
        engine.observe(received("m0", START_S + number + 0.5))
    forecasts = engine.tick(START_S + 200.0)

    assert len(forecasts) == 100
    assert engine.forgotten == 50
    assert ModelId("m0") in engine.models
    dropped = engine.take_dropped()
    assert len(dropped) == 50
    assert ModelId("m1") in dropped
    assert engine.take_dropped() == ()


def test_a_forgotten_model_that_comes_back_starts_anew(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig(max_models=1))
    for call in range(10):
        engine.observe(received("chat", START_S + call))
    engine.observe(received("cron", START_S + 20.0))
    engine.observe(received("chat", START_S + 30.0))

    assert curve(engine, CHAT, START_S + 31.0).status is ForecastStatus.WARMING_UP
    assert engine.take_dropped() == (CRON,)


def test_a_name_that_a_client_made_up_is_not_learned(received: Received) -> None:
    engine = curves_only()
    engine.observe(received("gpt-9", START_S))
    engine.observe(completed(ModelId("gpt-9"), START_S + 0.1, status=404))
    engine.observe(completed(ModelId("gpt-9"), START_S + 0.2, status=404))
    assert engine.take_dropped() == (ModelId("gpt-9"),)
    assert not engine.models

    engine.observe(completed(ModelId("gpt-9"), START_S + 0.3))
    assert not engine.models, "an answer without its request, as in a log that was trimmed"

    engine.observe(received("chat", START_S + 1.0))
    engine.observe(completed(CHAT, START_S + 2.0))
    engine.observe(completed(CHAT, START_S + 3.0, status=404))
    assert engine.models == (CHAT,)


@pytest.mark.case("P092")
def test_names_that_gateways_report_as_unknown_are_not_learned(received: Received) -> None:
    """As gateways tell it: a request that LocalAI answers with 404 has failed."""
    engine = curves_only()
    for call in range(50):
        engine.observe(received("gpt-4o", START_S + call))
        engine.observe(not_found(ModelId("gpt-4o"), START_S + call + 0.01))
    assert not engine.models
    assert engine.tick(START_S + 60.0) == ()

    engine.observe(received("chat", START_S + 61.0))
    engine.observe(completed(CHAT, START_S + 62.0))
    engine.observe(not_found(CHAT, START_S + 63.0))
    assert engine.models == (CHAT,), "a model that has served and was removed is no invention"


def test_a_request_that_names_no_model_is_nobody_s(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig())
    engine.observe(replace(received("x", START_S), model=None))
    engine.observe(replace(first_token(CHAT, START_S, 0.1), model=None))
    engine.observe(replace(completed(CHAT, START_S + 0.5), model=None))
    engine.observe(intent(START_S + 1.0))

    assert engine.models == ()


def test_times_and_speeds_are_told_as_they_were_seen(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig())
    engine.observe(received("chat", START_S))
    for step in range(10):
        engine.observe(first_token(CHAT, START_S + step, 0.1 * (step + 1)))
        engine.observe(completed(CHAT, START_S + step + 0.5, tokens=40))
    engine.observe(loaded(CHAT, START_S + 20.0, 8.0))
    engine.observe(loaded(CHAT, START_S + 21.0, None))
    engine.observe(loaded(ModelId("never asked for"), START_S + 22.0, 4.0))
    engine.observe(completed(CHAT, START_S + 23.0, status=500, tokens=0))
    (forecast,) = engine.tick(START_S + 30.0)

    ttft, speed, load = (
        forecast.signal(signal) for signal in (Signal.TTFT_S, Signal.TOKENS_PER_S, Signal.LOAD_S)
    )
    assert ttft is not None
    assert speed is not None
    assert load is not None
    assert ttft.horizons[0].quantiles == pytest.approx((0.2, 0.6, 1.0, 1.0))
    assert ttft.horizons[0].status is ForecastStatus.READY
    assert speed.horizons[0].mean == 20.0
    assert load.horizons[0].mean == 8.0
    assert load.horizons[0].status is ForecastStatus.WARMING_UP


def test_curves_do_not_depend_on_whether_signals_are_forecast(drive: Drive) -> None:
    rng = random.Random(8)
    arrivals = [(START_S + 9_000.0 * rng.random(), f"m{rng.randrange(3)}") for _ in range(300)]
    plain, full = curves_only(), PredictorEngine(PredictorConfig())

    bare = drive(plain, arrivals, START_S + 9_000.0)
    rich = drive(full, arrivals, START_S + 9_000.0)
    assert [forecast.next_use for forecast in bare] == [forecast.next_use for forecast in rich]
    assert all(not forecast.signals for forecast in bare)
    assert (plain.too_late, plain.resets, full.resets) == (0, 0, 0)


def test_a_client_that_asks_again_for_what_it_was_refused_is_one_demand(received: Received) -> None:
    engine = curves_only()
    first = received("a", 100.0)
    engine.observe(first)
    retry = replace(received("a", 103.0), is_retry=True)
    engine.observe(retry)
    assert curve(engine, ModelId("a"), 110.0).last_arrival_at_s == 100.0


@pytest.mark.parametrize("mark", ["is_retry", "is_deferrable"])
def test_what_comes_again_or_when_we_like_is_no_arrival(mark: str, received: Received):
    engine = curves_only()
    engine.observe(received(CHAT, START_S))
    again = received(CHAT, START_S + 5.0)
    engine.observe(
        replace(again, is_retry=True) if mark == "is_retry" else replace(again, is_deferrable=True)
    )
    assert curve(engine, CHAT, START_S + 10.0).last_arrival_at_s == START_S


def test_a_request_that_failed_otherwise_is_demand_all_the_same(received: Received):
    engine = curves_only()
    engine.observe(received(CHAT, START_S))
    engine.observe(replace(not_found(CHAT, START_S + 1.0), status=503))
    assert curve(engine, CHAT, START_S + 10.0).last_arrival_at_s == START_S
