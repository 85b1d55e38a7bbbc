from __future__ import annotations

import math
import random

import numpy as np
import pytest

from predictor.models.calendar_slots import DAY, HOUR, CalendarSlots
from predictor.models.decayed_rates import SCALES_S, DecayedRates
from predictor.models.gap_hazard import GapHazard

ROW = np.array([0])


def within(hazard: GapHazard, age_s: float, delay_s: float, row: int = 0) -> float:
    ahead = hazard.cumulative(np.array([row]), np.array([age_s]), np.array([delay_s]))
    return float(-np.expm1(-ahead[0, 0]))


def test_gaps_of_one_length_are_expected_then_and_hardly_before() -> None:
    hazard = GapHazard(1)
    for _ in range(50):
        hazard.learn(0, 300.0)

    assert within(hazard, 10.0, 60.0) < 0.02
    assert within(hazard, 285.0, 30.0) > 0.97


def test_gaps_without_memory_give_their_rate_at_any_age() -> None:
    hazard, rng = GapHazard(1), random.Random(7)
    for _ in range(2000):
        hazard.learn(0, rng.expovariate(1 / 300))

    for age_s in (5.0, 60.0, 200.0, 400.0):
        expected = -math.expm1(-60.0 / 300.0)
        assert within(hazard, age_s, 60.0) == pytest.approx(expected, rel=0.35)


def test_a_model_that_falls_silent_is_expected_less_and_less() -> None:
    hazard, rng = GapHazard(1), random.Random(7)
    for _ in range(200):
        hazard.learn(0, rng.uniform(20.0, 120.0))
    chances = [within(hazard, age_s, 60.0) for age_s in (60.0, 300.0, 3600.0, 86_400.0)]

    assert chances == sorted(chances, reverse=True)
    assert chances[0] > 0.5
    assert chances[-1] < 0.01


def test_a_new_model_is_taken_for_one_like_the_others() -> None:
    hazard = GapHazard(6)
    unknown = within(hazard, 55.0, 10.0, row=5)
    for row in range(5):
        for _ in range(50):
            hazard.learn(row, 60.0)
    hazard.refresh_population(np.arange(5))

    assert within(hazard, 55.0, 10.0, row=5) > 0.8 > unknown > 0.0


def test_a_busy_model_weighs_no_more_in_the_population_than_a_rare_one() -> None:
    hazard = GapHazard(12)
    for _ in range(150):
        hazard.learn(0, 2.0)
    for row in range(1, 11):
        for _ in range(15):
            hazard.learn(row, 600.0)
    hazard.refresh_population(np.arange(11))

    assert within(hazard, 1.0, 3.0, row=11) < 0.25


def test_what_a_row_held_is_forgotten_and_room_is_made() -> None:
    hazard = GapHazard(1)
    blank = within(hazard, 50.0, 20.0)
    for _ in range(50):
        hazard.learn(0, 60.0)
    hazard.grow(2)

    assert within(hazard, 50.0, 20.0, row=1) == pytest.approx(blank)
    assert hazard.gaps(np.array([0]))[0] > 40.0
    hazard.clear(0)
    assert hazard.gaps(np.array([0]))[0] == 0.0
    assert within(hazard, 50.0, 20.0) == pytest.approx(blank)


@pytest.mark.parametrize("gap_s", [0.0, 1e-9, 0.5, 1.0, 604_800.0, 1e12])
def test_any_gap_leaves_curves_finite(gap_s: float) -> None:
    hazard = GapHazard(1)
    hazard.learn(0, gap_s)
    ahead = hazard.cumulative(ROW, np.array([gap_s]), np.array([1.0, 3600.0]))

    assert np.isfinite(ahead).all()
    assert (ahead >= 0.0).all()


def test_rates_follow_what_came_each_at_its_own_pace() -> None:
    rates = DecayedRates(1)
    for call in range(600):
        rates.add(0, 60.0 * call)
    steady = rates.per_s(ROW, 36_000.0)[0]
    assert steady == pytest.approx(np.full(len(SCALES_S), 1 / 60), rel=0.3)

    quiet = rates.per_s(ROW, 36_000.0 + 1800.0)[0]
    assert quiet[0] < quiet[1] < quiet[2] < quiet[3]
    assert quiet[0] < 0.15 / 60
    assert quiet[4] == pytest.approx(1 / 60, rel=0.2)


def test_a_model_seen_once_has_a_rate_that_is_not_zero() -> None:
    rates = DecayedRates(1)
    rates.add(0, 1000.0)

    assert (rates.per_s(ROW, 1000.0) > 1e-4).all()
    assert (rates.per_s(ROW, 1e9) > 0.0).all()


def test_late_arrivals_and_a_clock_set_back_keep_rates_finite() -> None:
    rates = DecayedRates(2)
    rates.add(0, 1000.0)
    rates.add(0, 900.0)
    rates.rewind(500.0)
    rates.grow(3)
    rates.add(0, 510.0)
    rates.clear(1)

    assert np.isfinite(rates.per_s(ROW, 500.0)).all()
    assert rates.per_s(ROW, 510.0)[0, 0] > rates.per_s(ROW, 900.0)[0, 0]


def hourly(minute: int, hours: int, rows: int = 1) -> CalendarSlots:
    slots = CalendarSlots(HOUR, rows)
    for hour in range(hours):
        slots.add(0, 3600.0 * hour + 60.0 * minute + 5.0)
    slots.advance(3600.0 * hours)
    return slots


def test_a_job_of_cron_is_expected_in_its_minute_of_the_hour() -> None:
    slots = hourly(20, hours=12)
    hour_s = 12 * 3600.0
    before = slots.cumulative(ROW, hour_s + 18 * 60.0, np.array([60.0, 120.0, 180.0]))[0]

    assert before[0] < 0.1
    assert before[2] - before[1] > 1.0


def test_what_comes_past_the_full_hour_is_seen_before_it() -> None:
    slots = hourly(0, hours=12)
    ahead = slots.cumulative(ROW, 12 * 3600.0 - 60.0, np.array([60.0, 120.0]))[0]

    assert ahead[0] < 0.1 < 1.0 < ahead[1]


def test_a_run_that_has_come_does_not_announce_another_in_the_same_minute() -> None:
    slots = hourly(20, hours=12)
    now_s = 12 * 3600.0 + 20 * 60.0 + 1.0
    due = slots.cumulative(ROW, now_s, np.array([50.0]))[0, 0]
    slots.add(0, now_s)
    done = slots.cumulative(ROW, now_s, np.array([50.0, 3600.0]))[0]

    assert due > 1.0
    assert 0.0 <= done[0] < 0.1
    assert done[1] - done[0] > 0.1  # the first second of the next hour's run, and all between


def test_when_in_its_minute_a_job_starts_is_learned() -> None:
    slots = hourly(20, hours=24)
    begin_s = 24 * 3600.0 + 20 * 60.0
    before = slots.cumulative(ROW, begin_s - 30.0, np.array([30.0, 40.0, 90.0]))[0]

    assert before[1] - before[0] > 0.6 * (before[2] - before[0])


def test_time_that_was_not_watched_teaches_nothing() -> None:
    slots = hourly(20, hours=12)
    before = slots.cumulative(ROW, 12 * 3600.0, np.array([3600.0]))[0, 0]
    slots.advance(100 * 86_400.0)

    assert slots.cumulative(ROW, 100 * 86_400.0, np.array([3600.0]))[0, 0] == before


def test_a_straggler_from_an_earlier_minute_and_a_step_back_are_harmless() -> None:
    slots = hourly(20, hours=2, rows=2)
    slots.add(1, 7200.0 + 600.0)
    slots.add(1, 7200.0)
    slots.rewind(3600.0)
    slots.grow(3)
    slots.add(2, 3700.0)
    slots.clear(0)
    ahead = slots.cumulative(np.arange(3), 3700.0, np.array([60.0, 3600.0]))

    assert np.isfinite(ahead).all()
    assert (np.diff(ahead, axis=1) >= 0.0).all()


def test_a_job_of_working_days_is_expected_on_those_at_its_time() -> None:
    slots, day_s = CalendarSlots(DAY, 1), 86_400.0
    monday_s = 4 * day_s
    for day in range(14):
        if day % 7 < 5:
            slots.add(0, monday_s + day * day_s + 9 * 3600.0 + 12.0)
        slots.advance(monday_s + (day + 1) * day_s)
    chances = []
    for day in range(14, 21):
        nine_s = monday_s + day * day_s + 9 * 3600.0
        chances.append(-np.expm1(-slots.cumulative(ROW, nine_s - 10.0, np.array([60.0]))[0, 0]))
        if day % 7 < 5:
            slots.add(0, nine_s + 12.0)
        ten = slots.cumulative(ROW, nine_s + 3600.0, np.array([60.0]))[0, 0]
        assert ten < 0.02

    assert min(chances[:5]) > 0.5
    assert max(chances[5:]) < 0.02
