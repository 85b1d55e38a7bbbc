"""The methods of the mixture by themselves: their laws, weights and guards."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from contracts.forecasts import QUANTILE_LEVELS
from predictor.models import slot_profile
from predictor.models.count_quantiles import (
    LEVELS,
    CountQuantiles,
    band_share,
    counts_at,
    from_root,
    law_at,
    to_root,
)
from predictor.models.drift import DriftWatch
from predictor.models.hedge import HedgeWeights
from predictor.models.intents import Intents
from predictor.models.pooled_rate import PooledRate
from predictor.models.river_rate import RiverRate
from predictor.models.river_season import SLOT_S, SLOTS, RiverSeason
from predictor.models.slot_profile import SlotProfile
from predictor.windows import CountWindow

ROW = np.array([0])
HOUR_S = 3600.0
DAY_S = 86_400.0


@pytest.mark.parametrize("rate", [0.05, 0.7, 4.0, 60.0, 5000.0])
def test_quantiles_of_counts_cover_as_they_say(rate: float) -> None:
    law, draw = CountQuantiles(1, 1, share=1.0), np.random.default_rng(3)
    expected = np.array([[rate]])
    at_or_under, inside = np.zeros(len(QUANTILE_LEVELS)), 0.0
    for step in range(1500):
        roots = law.roots(ROW, expected)
        outcome = draw.poisson(rate, 1).astype(float)
        at_or_under += (outcome <= counts_at(roots)[0, 0]) * (step >= 500)
        inside += float(band_share(roots[:, 0], outcome)[0]) * (step >= 500)
        law.learn(ROW, expected, roots, outcome)

    shares = at_or_under / 1000.0
    # Counts are whole numbers: a share may lie above its level, by as much as one of them has.
    assert (shares >= np.array(QUANTILE_LEVELS) - 0.06).all()
    assert inside / 1000.0 == pytest.approx(0.8, abs=0.09)
    assert (np.diff(law.roots(ROW, expected)[0, 0]) >= 0.0).all()
    assert law.means(expected)[0, 0] == pytest.approx(rate, rel=0.25, abs=0.1)


def test_what_comes_exactly_once_is_soon_told_exactly() -> None:
    law, draw = CountQuantiles(2, 1, share=1.0), np.random.default_rng(4)
    rows, expected = np.array([0, 1]), np.array([[1.0], [1.0]])
    for _ in range(300):
        roots = law.roots(rows, expected)
        law.learn(rows, expected, roots, np.array([1.0, draw.poisson(1.0)]))
    exact, people = counts_at(law.roots(rows, expected))[:, 0].tolist()

    assert exact[:3] == [1.0, 1.0, 1.0]
    assert people[0] == 0.0
    assert people[2] >= 2.0


def test_a_new_row_has_the_law_of_all_and_a_cleared_one_too() -> None:
    law, expected = CountQuantiles(1, 1, share=1.0), np.array([[2.0]])
    law.grow(2)
    for _ in range(100):
        law.learn(ROW, expected, law.roots(ROW, expected), np.array([9.0]))
    new = law.roots(np.array([1]), expected)

    assert counts_at(new)[0, 0, 1] == pytest.approx(9.0, abs=1.0)
    law.clear(0)
    assert law.roots(ROW, expected).tolist() == new.tolist()


def test_who_has_no_opinion_has_no_law_and_teaches_none() -> None:
    law = CountQuantiles(1, 2, share=1.0)
    expected = np.array([[np.nan, 2.0]])
    law.learn(ROW, expected, law.roots(ROW, expected), np.array([3.0]))

    assert np.isnan(law.roots(ROW, expected)[0, 0]).all()
    assert np.isnan(law.means(expected)[0, 0])
    assert law._shifts[0, 0].tolist() == [0.0] * len(LEVELS)
    assert law._shifts[0, 1].any()


def test_an_outcome_has_a_stretch_of_the_law() -> None:
    # Nothing in nine of ten cases, one in the rest.
    counts = np.where(LEVELS <= 0.9, 0.0, 1.0)
    roots = to_root(counts)[None, :]
    below, up_to = law_at(roots, np.array([0.0]))

    assert below.tolist() == [0.0]
    assert 0.9 <= up_to[0] <= 0.95
    assert band_share(roots, np.array([0.0]))[0] == pytest.approx(0.8 / up_to[0], abs=0.02)
    assert band_share(roots, np.array([5.0]))[0] == 0.0
    assert band_share(to_root(np.full((1, len(LEVELS)), 3.0)), np.array([3.0]))[0] > 0.7


def test_roots_lead_back_to_counts() -> None:
    counts = np.array([0.0, 1.0, 17.0, 1e9])

    assert from_root(to_root(counts)) == pytest.approx(counts)
    assert from_root(np.array([-3.0])).tolist() == [0.0]


def test_weights_go_to_whom_was_right_and_come_back_when_that_changes() -> None:
    hedge = HedgeWeights(1, np.array([0.5, 0.25, 0.25]), share=1.0)
    speaks = np.array([[True, True, True]])
    for _ in range(50):
        hedge.learn(ROW, np.array([[2.0, 1.0, np.nan]]), np.array([1.0]))
    settled = hedge.of(ROW, speaks)[0]
    for _ in range(30):
        hedge.learn(ROW, np.array([[0.5, 3.0, 3.0]]), np.array([1.0]))
    changed = hedge.of(ROW, speaks)[0]

    assert settled[0] < 0.05
    assert settled[1] == pytest.approx(settled[2])  # who was mute lost nothing
    assert changed[0] > 0.9
    assert hedge.of(ROW, np.array([[False, True, True]]))[0].tolist() == pytest.approx(
        [0.0, 0.5, 0.5]
    )
    hedge.grow(2)
    hedge.clear(0)
    assert (
        hedge.of(np.array([0, 1]), np.array([[True] * 3] * 2)).tolist() == [[0.5, 0.25, 0.25]] * 2
    )


def test_a_loss_beyond_all_measure_leaves_weights() -> None:
    hedge = HedgeWeights(1, np.array([0.5, 0.5]), share=1.0)
    for _ in range(200):
        hedge.learn(ROW, np.array([[1e12, 1e12]]), np.array([1e12]))
        hedge.learn(ROW, np.array([[0.0, 1e-12]]), np.array([0.0]))
    weights = hedge.of(ROW, np.array([[True, True]]))

    assert np.isfinite(weights).all()
    assert weights.sum() == pytest.approx(1.0)


def test_the_shared_regression_learns_what_all_models_show() -> None:
    pooled, rng = PooledRate(2, share=1.0), np.random.default_rng(1)
    for _ in range(400):
        signs = rng.integers(0, 2, 30).astype(float)
        features = np.stack([np.ones(30), signs], axis=1)
        plain = np.zeros(30)
        means = pooled.expected(features, plain)
        pooled.learn(features, means, rng.poisson(0.5 * 6.0**signs).astype(float))
    low, high = pooled.expected(np.array([[1.0, 0.0], [1.0, 1.0]]), np.zeros(2))

    assert low == pytest.approx(0.5, rel=0.2)
    assert high == pytest.approx(3.0, rel=0.2)
    assert pooled.resets == 0


def test_the_shared_regression_stays_finite_and_starts_afresh_where_it_can_not() -> None:
    pooled = PooledRate(2, share=0.2)
    for outcome in (1e9, 0.0, 1e9):
        features = np.array([[1.0, 12.0]])
        means = pooled.expected(features, np.zeros(1))
        pooled.learn(features, means, np.array([outcome]))
    assert np.isfinite(pooled.expected(np.array([[1.0, 1e3]]), np.zeros(1))).all()
    pooled.learn(np.array([[1.0, np.nan]]), np.ones(1), np.ones(1))

    assert pooled.resets == 1
    assert pooled.expected(np.array([[1.0, 1.0]]), np.zeros(1)).tolist() == [1.0]


def test_features_that_are_not_finite_are_neither_learned_nor_forecast_from() -> None:
    river = RiverRate()
    river.see({"x": math.nan})
    river.learn({"x": math.inf}, 0, 1.0, 2.0)
    river.learn({"x": 1.0}, 0, 1.0, math.nan)

    assert river.forecast({"x": math.nan}, 0, 1.0) is None
    assert river.forecast({"x": 1.0}, 0, 1.0) == 1.0


def test_a_regression_that_runs_away_is_started_afresh() -> None:
    river = RiverRate()
    assert river.forecast({"x": 1.0}, 0, math.inf) is None
    assert river.resets == 1
    assert river.forecast({"x": 1.0}, 0, 1.0) is not None


def test_a_forecast_stays_in_the_range_that_outcomes_have_shown() -> None:
    river = RiverRate()
    for step in range(500):
        features = {"x": float(step)}
        river.see(features)
        river.learn(features, 0, 0.0, step / 100.0)

    root = river.forecast({"x": 1e9}, 0, 0.0)
    assert root is not None
    assert 0.0 <= root <= 1.5 * 4.99
    assert river.forecast({"x": -1e9}, 0, -5.0) == 0.0


@pytest.mark.case("P126")
def test_the_order_of_features_changes_nothing() -> None:
    one, other = RiverRate(), RiverRate()
    rng = random.Random(5)
    for _ in range(200):
        features = {name: rng.random() for name in "abcdef"}
        shuffled = dict(sorted(features.items(), reverse=True))
        root = rng.random()
        for river, given in ((one, features), (other, shuffled)):
            river.see(given)
            river.learn(given, 1, 0.5, root)
    last = dict.fromkeys("abcdef", 0.5)

    assert one.forecast(last, 1, 1.0) == pytest.approx(other.forecast(last, 1, 1.0))


def daily(days: int, *, unseen: range = range(0)) -> tuple[RiverSeason, CountWindow]:
    """A season that was told of six requests in the tenth hour of each day."""
    season = RiverSeason(1)
    window = CountWindow(width_s=10.0, buckets=432, rows=1)
    for slot in range(days * SLOTS):
        start_s = slot * SLOT_S
        for call in range(6 if slot % SLOTS == 40 else 0):
            window.add(0, start_s + 60.0 * call)
        if slot == 0:
            window.add(0, 0.0)
        window.advance(start_s + SLOT_S, watched=slot not in unseen)
        season.advance(window, ROW, start_s + SLOT_S)
    return season, window


def test_a_season_is_known_after_some_days_and_not_before_one() -> None:
    young, _ = daily(1)
    young_then = young.expected(ROW, 10 * HOUR_S)
    season, _ = daily(9)
    at_nine, at_ten = (season.expected(ROW, 9 * DAY_S)[0, 3] for _ in range(2))
    ahead_s = 9 * DAY_S + 40 * SLOT_S

    assert young_then.shape == (1, 4)
    assert at_nine == at_ten
    assert math.isnan(daily(0)[0].expected(ROW, 0.0)[0, 0])
    window = CountWindow(width_s=10.0, buckets=432, rows=1)
    window.add(0, 9 * DAY_S - 4000.0)
    for slot in range(9 * SLOTS, 9 * SLOTS + 40):
        window.advance((slot + 1) * SLOT_S, watched=True)
        season.advance(window, ROW, (slot + 1) * SLOT_S)
    assert season.expected(ROW, ahead_s)[0, 2] > 2.0 > at_nine


def test_a_season_goes_on_by_itself_while_nobody_watches_and_not_for_ever() -> None:
    season, _ = daily(4, unseen=range(3 * SLOTS, 3 * SLOTS + 20))
    assert np.isfinite(season.expected(ROW, 4 * DAY_S)).all()
    lost, _ = daily(5, unseen=range(3 * SLOTS, 5 * SLOTS))
    assert np.isnan(lost.expected(ROW, 5 * DAY_S)).all()
    window = CountWindow(width_s=10.0, buckets=432, rows=1)
    season.advance(window, ROW, 40 * DAY_S)
    assert np.isnan(season.expected(ROW, 40 * DAY_S)).all()


def test_a_season_that_is_not_finite_starts_afresh() -> None:
    season, window = daily(3)
    model = season._models[0]
    assert model is not None
    model.level.append(math.inf)
    window.advance(3 * DAY_S + SLOT_S, watched=True)
    season.advance(window, ROW, 3 * DAY_S + SLOT_S)

    assert season.resets == 1
    assert np.isnan(season.expected(ROW, 3 * DAY_S + SLOT_S)).all()
    season.rewind()
    season.grow(2)
    assert season.expected(np.array([1]), 0.0).shape == (1, 4)


def test_a_profile_leans_on_the_plain_rate_where_it_was_not_seen() -> None:
    profile = SlotProfile(slot_profile.HOUR, 1)
    window = CountWindow(width_s=10.0, buckets=432, rows=1)
    profile.advance(window, ROW, 0.0)
    rates = np.array([0.01])
    assert profile.expected(ROW, 0.0, np.array([600.0]), rates)[0, 0] == pytest.approx(6.0)
    for hour in range(20):
        window.add(0, hour * HOUR_S + 125.0)
        window.advance((hour + 1) * HOUR_S, watched=True)
        profile.advance(window, ROW, (hour + 1) * HOUR_S)
    minutes = [
        profile.expected(ROW, 20 * HOUR_S + 60.0 * minute, np.array([60.0]), rates)[0, 0]
        for minute in (1, 2, 3)
    ]

    assert minutes[1] > 0.8
    assert max(minutes[0], minutes[2]) < 0.2
    profile.shorten(0, 0.0)
    assert profile.expected(ROW, 0.0, np.array([600.0]), rates)[0, 0] == pytest.approx(6.0)
    profile.rewind()
    profile.grow(2)
    profile.clear(1)


def test_a_sign_is_worth_less_as_it_gets_old() -> None:
    intents = Intents(1)
    intents.grow(2)
    assert intents.freshness(np.array([0, 1]), 1e6).tolist() == [[0.0, 0.0], [0.0, 0.0]]
    intents.pick(1, 1e6)
    intents.list_all(1e6 - 60.0)
    fresh = intents.freshness(np.array([0, 1]), 1e6)

    assert fresh[:, 0].tolist() == [0.0, 1.0]
    assert fresh[:, 1] == pytest.approx([math.exp(-1.0)] * 2)
    intents.rewind(1e6 - 600.0)
    assert intents.freshness(np.array([1]), 1e6 - 600.0).tolist() == [[1.0, 1.0]]
    intents.clear(1)
    assert intents.freshness(np.array([1]), 1e6)[0, 0] == 0.0


def test_drift_is_seen_when_errors_change_and_noise_is_none() -> None:
    watch, rng = DriftWatch(1), random.Random(2)
    calm = [watch.changed(0, rng.gauss(0.0, 0.3)) for _ in range(600)]
    moved = [watch.changed(0, rng.gauss(1.5, 0.3)) for _ in range(200)]

    assert not any(calm)
    assert any(moved)
    assert watch.drifts == sum(moved)
    assert not watch.changed(0, math.nan)
    watch.clear(0)
    watch.grow(2)
    assert not watch.changed(1, 0.0)
