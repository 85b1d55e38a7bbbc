"""Field reports on demand forecasts, replayed."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable

import numpy as np
import pytest
from river import drift, time_series

from adapters.redis_history import _unpacked
from contracts.config import PredictorConfig
from contracts.events import RequestReceived
from contracts.forecasts import ForecastStatus, Signal
from contracts.history import HISTORY_RINGS, HistoryPage
from contracts.ids import ModelId
from predictor.engine import PredictorEngine
from predictor.history import retold
from predictor.models.river_rate import RiverRate
from predictor.models.river_season import SLOTS, RiverSeason
from predictor.windows import CountWindow

MONDAY_S = 1_699_833_600.0
DAY_S = 86_400.0
NINE_S = 9 * 3600.0
REPORT = ModelId("report")

Received = Callable[..., RequestReceived]


@pytest.mark.case("P126")
def test_features_that_went_through_json_give_the_same_forecast() -> None:
    rng, one, other = random.Random(1), RiverRate(), RiverRate()
    for _ in range(200):
        features = {name: rng.random() for name in "abcdef"}
        again = json.loads(json.dumps(dict(sorted(features.items(), reverse=True))))
        for river, given in ((one, features), (other, again)):
            river.see(given)
            river.learn(given, 0, 0.0, features["a"])
    last = dict.fromkeys("abcdef", 0.25)

    assert one.forecast(last, 0, 0.0) == pytest.approx(other.forecast(last, 0, 0.0), abs=1e-12)


@pytest.mark.case("P127")
def test_what_is_used_of_river_learns_forecasts_and_is_never_chained() -> None:
    river, window, season = (
        RiverRate(),
        CountWindow(width_s=10.0, buckets=432, rows=1),
        RiverSeason(1),
    )
    river.see({"x": 1.0})
    river.learn({"x": 1.0}, 0, 1.0, 2.0)
    window.add(0, 0.0)
    for slot in range(1, SLOTS + 2):
        window.advance(900.0 * slot, watched=True)
        season.advance(window, np.array([0]), 900.0 * slot)

    assert river.forecast({"x": 1.0}, 0, 1.0) is not None
    assert np.isfinite(season.expected(np.array([0]), 900.0 * (SLOTS + 1))).all()
    assert time_series.HoltWinters(alpha=0.5).learn_one(1.0) is None
    assert drift.ADWIN().update(0.0) is None


@pytest.mark.case("P128")
@pytest.mark.parametrize("damaged", ["cut", "random", "empty"])
def test_damaged_rings_are_read_as_far_as_they_make_sense(damaged: str, received: Received) -> None:
    rng = random.Random(2)
    whole = rng.randbytes(20 * HISTORY_RINGS[60.0])
    ring = {"cut": whole[:1_007], "random": whole, "empty": b""}[damaged]
    buckets = _unpacked(ring, HISTORY_RINGS[60.0])
    page = HistoryPage(model=REPORT, width_s=60.0, buckets=buckets)
    told = retold({REPORT: (page,) if buckets else ()}, before_s=MONDAY_S)
    engine = PredictorEngine(PredictorConfig())
    for event in (*told[:500], received(REPORT, MONDAY_S)):
        engine.observe(event)
    engine.tick(MONDAY_S)
    (forecast,) = engine.tick(MONDAY_S + 10.0)

    assert forecast.next_use is not None
    assert all(map(math.isfinite, forecast.next_use.cumulative_hazard))


@pytest.mark.case("P129")
def test_three_days_are_enough_for_a_finite_forecast_and_it_says_that_it_warms_up(
    received: Received,
) -> None:
    engine, rng = PredictorEngine(PredictorConfig()), random.Random(3)
    for hour in range(72):
        for call in range(2 + hour % 3):
            at_s = MONDAY_S + 3600.0 * hour + 600.0 * call + rng.random()
            engine.observe(received(REPORT, at_s))
    now_s = MONDAY_S + 3 * DAY_S
    engine.tick(now_s)
    (forecast,) = engine.tick(now_s + 10.0)
    arrivals = forecast.signal(Signal.ARRIVALS)

    assert arrivals is not None
    for horizon in arrivals.horizons:
        assert horizon.status is ForecastStatus.WARMING_UP
        assert math.isfinite(horizon.mean)
        assert 0.0 <= horizon.mean < 50.0


def mornings(engine: PredictorEngine, received: Received, days: range) -> None:
    """Twenty requests from nine on, Monday to Friday."""
    rng = random.Random(4)
    for day in days:
        begin_s = MONDAY_S + DAY_S * day + NINE_S
        for at_s in sorted(begin_s + 1200.0 * rng.random() for _ in range(20)):
            if day % 7 < 5:
                engine.observe(received(REPORT, at_s, f"{at_s}"))


def within_load(engine: PredictorEngine, now_s: float) -> float:
    """P(a request while a load of 180 s that begins now goes on, or in the minute after it)."""
    curve = engine.next_use(REPORT, now_s)
    assert curve is not None
    return curve.probability_between(now_s, 0.0, 240.0)


@pytest.mark.case("P130")
def test_a_peak_at_nine_on_workdays_is_seen_coming_for_longer_than_a_load(
    received: Received,
) -> None:
    engine = PredictorEngine(PredictorConfig(), signals=False)
    mornings(engine, received, range(10))
    thursday_s = MONDAY_S + 10 * DAY_S
    engine.pass_time(thursday_s + 3600.0, steps=10)
    before = within_load(engine, thursday_s + NINE_S - 200.0)
    at_night = within_load(engine, thursday_s + 3 * 3600.0)
    mornings(engine, received, range(10, 12))
    on_sunday = within_load(engine, MONDAY_S + 13 * DAY_S + NINE_S - 200.0)

    assert before > 0.1
    assert before > 10.0 * at_night
    assert before > 10.0 * on_sunday


@pytest.mark.case("P131")
def test_a_habit_that_stops_is_expected_no_more_within_three_days(received: Received) -> None:
    engine = PredictorEngine(PredictorConfig(), signals=False)
    mornings(engine, received, range(10))
    last_s = MONDAY_S + 11 * DAY_S + NINE_S - 200.0
    for minute in range(24 * 60):
        engine.advance(last_s - DAY_S + 60.0 * minute)

    assert within_load(engine, last_s) < 0.05
    assert within_load(engine, last_s + 3 * DAY_S) < 0.05


@pytest.mark.case("P136")
def test_a_clock_that_steps_back_and_forth_and_a_sleep_leave_forecasts_sound(
    received: Received,
) -> None:
    engine = PredictorEngine(PredictorConfig())
    now_s = MONDAY_S
    for step_s in (0.0, -3600.0, 7200.0, 7200.0):
        now_s += step_s
        for _ in range(20):
            now_s += 30.0
            engine.observe(received(REPORT, now_s, f"{now_s}+{step_s}"))
            engine.tick(now_s + 1.0)
    (forecast,) = engine.tick(now_s + 11.0)

    assert engine.rewinds == 1
    assert forecast.next_use is not None
    assert forecast.next_use.probability_between(now_s + 11.0, 0.0, 60.0) > 0.5
    for signal in forecast.signals:
        for horizon in signal.horizons:
            assert all(math.isfinite(value) and value >= 0.0 for value in horizon.quantiles)
