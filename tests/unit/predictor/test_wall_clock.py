"""People keep to the clock on the wall, also in the week after it was changed."""

from __future__ import annotations

import io
import math
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.config import PredictorConfig
from contracts.forecasts import NEXT_USE_GRID_S
from predictor.engine import PredictorEngine
from predictor.engine_snapshot import Learned, dump, load
from predictor.history import HistoryBook
from predictor.models import slot_profile
from predictor.models.calendar_slots import DAY, CalendarSlots
from predictor.models.slot_profile import SlotProfile
from predictor.wall_clock import utc_offset_s
from predictor.windows import CountWindow
from tests.arrivals import received

ROW = np.array([0])
HOUR_S, DAY_S = 3600.0, 86_400.0
DUBLIN = "Europe/Dublin"
HALF_HOUR = next(place for place, delay_s in enumerate(NEXT_USE_GRID_S) if delay_s >= 1800.0)
AUTUMN, SPRING = (
    datetime(2025, 10, 27, tzinfo=ZoneInfo(DUBLIN)),
    datetime(2026, 3, 30, tzinfo=ZoneInfo(DUBLIN)),
)
"""Mondays after the clocks were changed."""


class Demand:
    """Counts of one model by the quarter of an hour of the day."""

    def __init__(self) -> None:
        self.profile = SlotProfile(slot_profile.DAY, 1)
        self._window = CountWindow(width_s=10.0, buckets=432, rows=1)
        self.keep_to = self.profile.keep_to

    def quarter(self, slot: int, *, arrivals: int) -> None:
        """A quarter of an hour passes, numbered from the epoch, with these in it."""
        for number in range(arrivals):
            self._window.add(0, 900.0 * slot + 900.0 * number / arrivals)
        end_s = 900.0 * (slot + 1)
        self._window.advance(end_s, watched=True)
        self.profile.advance(self._window, ROW, end_s)


def used_to_mornings(zone: str, monday: datetime) -> PredictorEngine:
    """Three weeks of working days before ``monday``: people come at nine, and for an hour."""
    config = PredictorConfig(publish_s=600.0, time_zone=zone)
    engine = PredictorEngine(config, signals=False)
    for day in range(21, 0, -1):
        nine = monday - timedelta(days=day) + timedelta(hours=9)
        if nine.weekday() < 5:
            for minute in range(0, 60, 4):
                come_s = nine.timestamp() + 60.0 * minute
                engine.pass_time(come_s, steps=10_000)
                engine.observe(received(come_s))
    return engine


def chance(engine: PredictorEngine, local: datetime) -> float:
    """Of a request within half an hour."""
    engine.pass_time(local.timestamp(), steps=10_000)
    (forecast,) = engine.tick(local.timestamp())
    assert forecast.next_use is not None
    return 1.0 - math.exp(-forecast.next_use.cumulative_hazard[HALF_HOUR])


@pytest.mark.case("P123")
@pytest.mark.parametrize("monday", [AUTUMN, SPRING], ids=["autumn", "spring"])
def test_the_peak_of_monday_morning_is_expected_at_its_hour_after_the_change(monday: datetime):
    engine = used_to_mornings(DUBLIN, monday)
    early, due = (chance(engine, monday + timedelta(hours=hour, minutes=45)) for hour in (7, 8))
    assert due > 0.9
    assert early < 0.4


def test_by_utc_it_is_expected_an_hour_off():
    """What the zone is for: clocks that nobody changes are wrong for people after a change."""
    engine = used_to_mornings("UTC", AUTUMN)
    assert chance(engine, AUTUMN + timedelta(hours=7, minutes=45)) > 0.5


def test_what_the_clock_was_is_kept_with_what_was_learned():
    config = PredictorConfig(publish_s=600.0, time_zone=DUBLIN)
    engine, file = PredictorEngine(config), io.BytesIO()
    for minute in range(0, 40 * 60, 30):
        come_s = (AUTUMN - timedelta(hours=40)).timestamp() + 60.0 * minute
        engine.pass_time(come_s, steps=1000)
        engine.observe(received(come_s))
    dump(Learned(engine, HistoryBook(), "7-0"), {}, file)
    file.seek(0)
    other = PredictorEngine(config)
    load(file, {}).put_into(other)
    assert other.tick(AUTUMN.timestamp()) == engine.tick(AUTUMN.timestamp()) != ()


def test_counts_of_a_time_of_day_move_with_the_clock():
    """Ninety a day in the quarter of an hour from nine, while clocks are an hour ahead."""
    demand, rates = Demand(), np.full(1, 1e-3)
    demand.keep_to(3600.0)
    for slot in range(10 * 96):
        demand.quarter(slot, arrivals=90 if slot % 96 == 8 * 4 else 0)
    eight_s, nine_s = 10 * DAY_S + 8 * HOUR_S, 10 * DAY_S + 9 * HOUR_S

    def within_a_quarter(now_s: float) -> float:
        return float(demand.profile.expected(ROW, now_s, np.array([900.0]), rates)[0, 0])

    assert within_a_quarter(eight_s) > 70.0
    demand.keep_to(0.0)
    assert within_a_quarter(eight_s) < 2.0
    assert within_a_quarter(nine_s) > 70.0


def test_a_weekend_is_that_of_the_zone():
    """Callers of Honolulu work on their Friday evening, which is Saturday by UTC."""
    slots, offset_s = CalendarSlots(DAY, 1), utc_offset_s("Pacific/Honolulu", AUTUMN.timestamp())
    slots.keep_to(offset_s)
    monday_s = 4 * DAY_S - offset_s
    for day in range(14):
        if day % 7 < 5:
            slots.add(0, monday_s + day * DAY_S + 20 * HOUR_S + 12.0)
        slots.advance(monday_s + (day + 1) * DAY_S)
    chances = []
    for day in range(14, 21):
        eight_s = monday_s + day * DAY_S + 20 * HOUR_S
        chances.append(-np.expm1(-slots.cumulative(ROW, eight_s - 10.0, np.array([60.0]))[0, 0]))
        if day % 7 < 5:
            slots.add(0, eight_s + 12.0)
    assert min(chances[:5]) > 0.5
    assert max(chances[5:]) < 0.02


@given(st.floats(allow_nan=False), st.sampled_from(["UTC", DUBLIN, "Asia/Kathmandu"]))
def test_there_is_an_offset_at_any_time(moment_s: float, zone: str):
    assert abs(utc_offset_s(zone, moment_s)) <= 14 * 3600.0
