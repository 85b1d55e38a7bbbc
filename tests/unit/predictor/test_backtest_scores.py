"""What a method is worth: by hand, on looks small enough to reckon."""

from __future__ import annotations

import math

import numpy as np
import pytest

from contracts.forecasts import QUANTILE_LEVELS
from predictor.backtest_scores import RELIABLE_CASES, ArrivalTally, UseTally, band_share

ROW = np.array([0])


def tally(quantiles, outcomes, *, means=None, last=None, unit=1):
    """One model; ``quantiles`` by look and method: four numbers each."""
    quantiles = np.array(quantiles, dtype=float)
    found = ArrivalTally(methods=quantiles.shape[1], models=1, unit=unit)
    means = quantiles[:, :, 1] if means is None else np.array(means, dtype=float)
    last = np.zeros(len(outcomes)) if last is None else np.array(last, dtype=float)
    for look, outcome in enumerate(outcomes):
        found.add(
            ROW,
            quantiles[look][None],
            means[look][None],
            np.array([float(outcome)]),
            last[look : look + 1],
        )
    return found


def test_the_seasonal_naive_forecast_is_one_and_a_sharper_one_less():
    # Pinball at .1 .5 .9 .99 of 10 against a point of 0: 1, 5, 9, 9.9; against 8: a fifth of it.
    found = tally([[[8] * 4, [0] * 4]], [10])
    assert found.score(1).scaled_pinball == pytest.approx(1.0)
    assert found.score(0).scaled_pinball == pytest.approx(0.2)
    assert found.losses_by_model(0)[0] == pytest.approx(0.2)


def test_too_much_costs_by_the_other_side_of_the_level():
    # A point of 20 against 10: .9, .5, .1 and .01 of 10.
    found = tally([[[20] * 4, [0] * 4]], [10])
    assert found.score(0).scaled_pinball == pytest.approx(1.51 / 2.49)


def test_nothing_is_said_where_the_unit_lost_nothing():
    found = tally([[[1] * 4, [2] * 4]], [2])
    assert found.score(0).scaled_pinball is None
    assert np.isnan(found.losses_by_model(0)[0])


def test_rmsse_is_the_error_of_the_mean_over_that_of_the_last_value():
    found = tally([[[4] * 4, [0] * 4]] * 2, [4, 8], means=[[3, 0], [6, 0]], last=[2, 4])
    # Errors 1 and 2 against 2 and 4.
    assert found.score(0).rmsse == pytest.approx(0.5)


def test_rmsse_leaves_out_models_that_the_last_value_was_never_wrong_about():
    assert tally([[[4] * 4, [0] * 4]], [4], last=[4]).score(0).rmsse is None


def test_both_ends_belong_to_the_band():
    looks = [[[2, 6, 9, 12], [0] * 4]] * 4
    found = tally(looks, [2, 9, 10, 1])
    assert found.score(0).coverage_80_closed == pytest.approx(0.5)


def test_a_right_law_covers_about_eight_in_ten_whatever_its_ties():
    covered, closed = [], []
    for mean in (0.01, 0.1, 0.3, 0.7, 1.0, 2.0, 3.0, 5.0, 8.0, 15.0, 40.0):
        counts = np.arange(120.0)
        law = np.exp(-mean + counts * np.log(mean) - [math.lgamma(n + 1) for n in counts])
        levels = np.searchsorted(np.cumsum(law), QUANTILE_LEVELS)
        quantiles = np.tile(levels.astype(float), (len(counts), 1, 1))
        covered.append(law @ band_share(quantiles, counts)[:, 0])
        closed.append(law @ ((levels[0] <= counts) & (counts <= levels[2])))
    # Four quantiles tell a law only so far; the plain share is off by up to nineteen points.
    assert np.abs(np.array(covered) - 0.8).max() < 0.09
    assert np.mean(covered) == pytest.approx(0.8, abs=0.02)
    assert max(closed) > 0.98


def test_what_lies_beside_the_band_is_outside_and_what_lies_in_it_inside():
    quantiles = np.tile([10.0, 20.0, 30.0, 40.0], (5, 1, 1))
    shares = band_share(quantiles, np.array([3.0, 15.0, 25.0, 35.0, 50.0]))[:, 0]
    assert shares.tolist() == [0.0, 1.0, 1.0, 0.0, 0.0]


def test_the_last_value_stands_in_for_whoever_says_nothing():
    found = tally([[[np.nan] * 4, [0] * 4], [[8] * 4, [0] * 4]], [10, 10], last=[10, 0])
    assert found.score(0).scaled_pinball == pytest.approx(0.1)
    assert found.score(0).mute_ratio == pytest.approx(0.5)
    assert found.score(0).coverage_80 == 0.0


def test_brier_and_the_worst_tenth():
    found = UseTally(2)
    came = np.arange(RELIABLE_CASES) % 2 == 0
    said = np.tile([0.75, np.nan], (RELIABLE_CASES, 1))
    found.add(said, came)
    found.add(np.array([[0.15, np.nan]]), np.array([True]))
    score = found.score(0)
    assert score.brier == pytest.approx(
        (RELIABLE_CASES * (0.75**2 + 0.25**2) / 2 + 0.85**2) / (RELIABLE_CASES + 1)
    )
    # The tenth with a single look is none.
    assert score.reliability_max_error == pytest.approx(0.25)
    assert [decile.cases for decile in score.deciles] == [1, RELIABLE_CASES]
    assert found.score(1).brier is None
    assert found.score(1).reliability_max_error is None
