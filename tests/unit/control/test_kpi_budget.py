"""Error budgets: what is left, how fast it goes, and when it is gone."""

from __future__ import annotations

import pytest

from api.control.kpis.budget import Budget, Judged, budget


def of(
    week: tuple[int, int],
    six: tuple[int, int],
    hour: tuple[int, int],
    forecast: float | None = None,
) -> Budget:
    def part(counts: tuple[int, int]) -> Judged:
        return Judged(judged=counts[0], met=counts[0] - counts[1])

    return budget(
        95.0, week=part(week), six_hours=part(six), hour=part(hour), expected_requests_1h=forecast
    )


def test_without_a_judged_request_nothing_is_known():
    found = of((0, 0), (0, 0), (0, 0))
    assert (found.remaining_ratio, found.burn_1h, found.burn_6h) == (None, None, None)
    assert (found.exhausted_in_s, found.expected_ratio, found.breach) == (None, None, None)


def test_a_quiet_hour_leaves_the_last_six_to_judge_by():
    found = of((1000, 10), (60, 6), (0, 0))
    assert found.remaining_ratio == pytest.approx(0.8)
    assert found.burn_1h is None
    assert found.burn_6h == pytest.approx(2.0)
    # Ten an hour, of which 10 % miss and 5 % may: half a request an hour of the forty left.
    assert found.exhausted_in_s == pytest.approx(80 * 3600.0)
    assert found.breach is False


def test_a_fast_burn_is_a_breach_within_the_day():
    found = of((1000, 40), (100, 30), (50, 25))
    assert found.burn_1h == pytest.approx(10.0)
    assert found.exhausted_in_s == pytest.approx(3600.0 * 10 / 22.5)
    assert found.breach is True
    assert found.expected_ratio == pytest.approx((960 + 25) / 1050)


def test_as_many_as_are_forecast_are_taken_to_come():
    found = of((1000, 40), (100, 30), (50, 25), forecast=2.0)
    assert found.exhausted_in_s == pytest.approx(3600.0 * 10 / 0.9)


def test_at_a_rate_that_is_allowed_it_lasts():
    found = of((1000, 10), (100, 1), (20, 1))
    assert (found.exhausted_in_s, found.breach) == (None, False)


def test_what_lasts_longer_than_the_window_lasts():
    assert of((100_000, 10), (100, 6), (20, 2)).exhausted_in_s is None


def test_an_overdrawn_budget_is_gone_now():
    found = of((100, 10), (10, 0), (10, 0))
    assert found.remaining_ratio == pytest.approx(-1.0)
    assert (found.exhausted_in_s, found.breach) == (0.0, True)


def test_a_week_whose_last_hours_were_quiet_has_no_rate():
    found = of((100, 1), (0, 0), (0, 0))
    assert (found.exhausted_in_s, found.expected_ratio, found.breach) == (None, None, False)
