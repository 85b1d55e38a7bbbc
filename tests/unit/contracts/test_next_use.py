from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.forecasts import NEXT_USE_GRID_S, ForecastStatus, NextUse
from contracts.ids import ModelId


def curve(hazard: tuple[float, ...], **changes: object) -> NextUse:
    made = NextUse(
        model=ModelId("a"),
        made_at_s=100.0,
        expires_at_s=160.0,
        last_arrival_at_s=90.0,
        cumulative_hazard=hazard,
        method="test",
        status=ForecastStatus.READY,
        brier=None,
        floor_brier=None,
    )
    return replace(made, **changes)  # type: ignore[arg-type]  # tests name the fields


def constant(rate_per_s: float) -> NextUse:
    return curve(tuple(rate_per_s * delay_s for delay_s in NEXT_USE_GRID_S))


def test_a_constant_rate_gives_the_exponential_whatever_time_has_passed():
    for now_s in (100.0, 130.0, 159.0):
        assert constant(0.01).probability_between(now_s, 0.0, 60.0) == pytest.approx(
            1 - math.exp(-0.6)
        )


def test_between_grid_points_the_hazard_is_linear():
    assert constant(0.5).hazard_within(9.5) == pytest.approx(4.75)
    assert constant(0.5).hazard_within(0.25) == pytest.approx(0.125)


def test_past_the_grid_nothing_is_extrapolated():
    flat = constant(0.001)
    assert flat.hazard_within(10_000.0) == flat.hazard_within(3600.0)
    assert flat.probability_between(100.0, 3600.0, 7200.0) == 0.0


def test_no_time_no_hazard():
    assert constant(1.0).hazard_within(0.0) == 0.0
    assert constant(1.0).hazard_within(-5.0) == 0.0


def test_a_clock_that_stepped_back_reads_the_curve_as_just_made():
    stepped = constant(0.01).probability_between(50.0, 0.0, 10.0)
    assert stepped == constant(0.01).probability_between(100.0, 0.0, 10.0)


def test_an_expired_or_degraded_curve_is_not_valid():
    assert constant(0.1).is_valid(159.9)
    assert not constant(0.1).is_valid(160.0)
    assert not replace(constant(0.1), status=ForecastStatus.DEGRADED).is_valid(120.0)


@given(
    steps=st.lists(
        st.floats(0.0, 50.0), min_size=len(NEXT_USE_GRID_S), max_size=len(NEXT_USE_GRID_S)
    ),
    now_s=st.floats(0.0, 10_000.0),
    start_s=st.floats(0.0, 5_000.0),
    length_s=st.floats(0.0, 5_000.0),
)
def test_any_curve_gives_a_probability(
    steps: list[float], now_s: float, start_s: float, length_s: float
):
    hazard, total = [], 0.0
    for step in steps:
        total += step
        hazard.append(total)
    probability = curve(tuple(hazard)).probability_between(now_s, start_s, start_s + length_s)
    assert 0.0 <= probability <= 1.0
