"""The day that a fleet is measured on, and what the predictor tells of it."""

from __future__ import annotations

from itertools import takewhile

import pytest

from cli.bench_autoscale import DAY_S, Sight, Wave, drawn
from contracts.scaling import ScalingTarget

WAVE = Wave(highest=1.0, opening_s=1200.0)


@pytest.mark.parametrize(
    ("hour", "share"),
    [(3.0, 0.05), (8.5, 0.525), (10.0, 1.0), (12.5, 0.62), (15.0, 1.0), (23.0, 0.05)],
)
def test_a_day_has_nights_an_opening_a_noon_and_a_closing(hour: float, share: float):
    assert WAVE(hour * 3600.0) == pytest.approx(share, abs=0.01)
    assert WAVE(hour * 3600.0 + DAY_S) == WAVE(hour * 3600.0)


def test_requests_are_drawn_by_the_wave_and_the_seed_alone():
    arrivals = list(drawn(WAVE, until_s=DAY_S, seed=1))
    assert arrivals == list(drawn(WAVE, until_s=DAY_S, seed=1))
    morning = sum(10.0 * 3600 <= at_s < 11.0 * 3600 for at_s, _ in arrivals)
    night = sum(2.0 * 3600 <= at_s < 3.0 * 3600 for at_s, _ in arrivals)
    assert morning == pytest.approx(3600, rel=0.1)
    assert night == pytest.approx(180, rel=0.3)


def test_the_predictor_expects_what_a_steady_hour_needs():
    steady = Wave(highest=0.5, opening_s=1200.0)
    morning_s = 10.0 * 3600
    arrivals = takewhile(
        lambda one: one[0] < morning_s + 3600, drawn(steady, until_s=DAY_S, seed=1)
    )
    late = tuple((at_s - morning_s, took_s) for at_s, took_s in arrivals if at_s >= morning_s)
    sight = Sight(late, ScalingTarget(name="chat", start_s=90.0))
    sight.see(3600.0)
    expected = sight.expected(3600.0)
    assert expected is not None
    # Half a request a second of ten seconds each are five at once; nine times in ten no more.
    assert 4.0 < expected < 10.0
