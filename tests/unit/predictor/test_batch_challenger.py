"""Features, trees as arrays, and the challenger that they make."""

from __future__ import annotations

import dataclasses
import os
import time

# Before scikit-learn is loaded: its threads would wait for each other on a busy machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest

from contracts.errors import Invalid, Permanent
from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor import batch_training
from predictor.batch_challenger import BoostedChallenger
from predictor.batch_features import (
    DAY_MINUTES,
    FEATURES,
    LEAST_MINUTES,
    MINUTES_NEEDED,
    bases_of,
    features_of,
    from_root,
    to_root,
)
from predictor.batch_training import LEAST_ROWS, Training, TreeSettings, looks_at
from predictor.batch_trees import Trees

SMALL = TreeSettings(iterations=5, leaves=4)


def quiet(models=1):
    return np.zeros((models, MINUTES_NEEDED))


def named(minutes, name, end_s=0.0):
    return features_of(minutes, end_s)[:, FEATURES.index(name)]


def test_sums_gaps_and_repeats_are_told():
    minutes = quiet()
    minutes[0, -1] = 3.0
    minutes[0, -11] = 1.0
    assert from_root(named(minutes, "last_1_min"))[0] == pytest.approx(3.0)
    assert from_root(named(minutes, "last_15_min"))[0] == pytest.approx(4.0)
    assert named(minutes, "since_last")[0] == 0.0
    assert named(minutes, "gap_before")[0] == pytest.approx(np.log1p(10))
    assert named(minutes, "active_60_min")[0] == pytest.approx(2 / 60)


def test_what_comes_each_ten_minutes_is_seen_when_it_is_due():
    minutes = quiet()
    minutes[0, MINUTES_NEEDED - 10 * np.arange(1, 100)] = 1.0
    assert named(minutes, "each_10_min")[0] == 1.0
    assert named(minutes, "each_15_min")[0] == pytest.approx(0.5)
    assert named(minutes, "hourly_1_min")[0] == pytest.approx(16 / 23)
    assert named(np.roll(minutes, 1), "each_10_min")[0] == 0.0


def test_yesterday_at_this_time_is_told():
    minutes = quiet()
    minutes[0, MINUTES_NEEDED - DAY_MINUTES + 3] = 2.0
    assert from_root(named(minutes, "day_ago_5_min"))[0] == pytest.approx(2.0)
    assert from_root(named(minutes, "day_ago_1_min"))[0] == pytest.approx(0.0)


def test_a_model_that_was_never_used_has_finite_features():
    assert np.isfinite(features_of(quiet(), 1.7e9)).all()


def test_a_model_known_for_less_than_an_hour_is_not_judged():
    minutes = quiet(2)
    minutes[0, : -LEAST_MINUTES + 1] = np.nan
    minutes[1, :-LEAST_MINUTES] = np.nan
    features = features_of(minutes, 0.0)
    assert np.isnan(features[0]).all()
    assert np.isfinite(features[1]).all()


def test_trees_start_from_a_plain_rate():
    minutes = quiet()
    minutes[0, -DAY_MINUTES:] = 2.0
    bases = from_root(bases_of(features_of(minutes, 0.0)))
    assert bases[0] == pytest.approx([2.0, 10.0, 30.0, 120.0])


def test_roots_go_back_to_counts():
    counts = np.array([0.0, 1.0, 1e9])
    assert from_root(to_root(counts)) == pytest.approx(counts)


def busy_history(models=8, days=1.5, seed=1):
    chance = np.random.default_rng(seed)
    minutes = chance.poisson(0.05, (models, round(days * DAY_MINUTES))).astype(float)
    minutes[0, ::10] += 2.0
    minutes[1, :800] = np.nan
    return minutes


@pytest.fixture(scope="module")
def challenger():
    trained = Training([SMALL]).train(busy_history(), 1.7e9)
    assert trained is not None
    return trained


def test_quantiles_are_whole_ordered_and_never_negative(challenger):
    minutes = busy_history(seed=2)[:, -MINUTES_NEEDED:]
    minutes[2] = 1e9
    minutes[3, :-10] = np.nan
    said = challenger.quantiles(minutes, 1.7e9)
    assert said.shape == (8, len(HORIZONS_S), len(QUANTILE_LEVELS))
    assert np.isnan(said[3]).all()
    known = np.delete(said, 3, axis=0)
    assert np.isfinite(known).all()
    assert (known >= 0.0).all()
    assert (np.diff(known, axis=2) >= 0.0).all()
    assert (known == np.rint(known)).all()


def test_it_says_the_same_whoever_else_is_asked_about(challenger):
    minutes = busy_history(seed=3)[:, -MINUTES_NEEDED:]
    many = np.tile(minutes, (50, 1))
    assert np.array_equal(
        challenger.quantiles(many, 1.7e9)[:8], challenger.quantiles(minutes, 1.7e9)
    )
    assert challenger.name == "boosted"
    assert challenger.minutes_needed == MINUTES_NEEDED
    assert not challenger.promoted


def test_it_learns_what_comes_each_ten_minutes(challenger):
    minutes = busy_history()[:, :-5]
    said = challenger.quantiles(minutes[:, -MINUTES_NEEDED:], 1.7e9 - 300.0)
    often, seldom = said[0, 1], said[5, 1]
    assert often[1] > seldom[1]


def test_five_hundred_models_are_asked_within_a_second(challenger):
    minutes = np.tile(busy_history()[:, -MINUTES_NEEDED:], (63, 1))[:500]
    began_s = time.process_time()
    challenger.quantiles(minutes, 1.7e9)
    assert time.process_time() - began_s < 5.0  # far beyond what it takes: no promise of speed


def test_too_little_history_trains_nothing():
    assert Training().train(busy_history(models=2, days=0.1), 1.7e9) is None
    assert Training().train(np.zeros((1, 30)), 1.7e9) is None


def test_the_grid_is_compared_on_what_comes_last():
    poor = TreeSettings(iterations=1, leaves=2, learning_rate=0.01)
    fair = TreeSettings(iterations=12, leaves=6)
    minutes = np.zeros((8, 2 * DAY_MINUTES))
    minutes[:, ::20] = 20.0
    minutes[:, 1::20] = 10.0
    training = Training([poor, fair])
    assert training.train(minutes, 1.7e9) is not None
    assert training.chosen == fair


def test_with_too_few_early_looks_the_first_settings_are_taken(monkeypatch):
    monkeypatch.setattr(batch_training, "LEAST_ROWS", 10)
    training = Training([SMALL, TreeSettings(iterations=2, leaves=2)])
    minutes = np.zeros((1, 200))
    minutes[0, ::7] = 1.0
    looks = looks_at(minutes, 1.7e9)
    assert 0 < len(looks.at) < LEAST_ROWS
    assert training.train(minutes, 1.7e9) is not None
    assert training.chosen == SMALL


def test_looks_know_what_came_and_nothing_later():
    minutes = np.arange(400.0)[None]
    looks = looks_at(minutes, 400 * 60.0)
    end = int(looks.at[0])
    assert looks.outcomes[0].tolist() == [
        minutes[0, end : end + width].sum() for width in (1, 5, 15, 60)
    ]
    assert from_root(looks.features[0, :1])[0] == pytest.approx(minutes[0, end - 1])


def test_trees_that_would_say_something_else_are_not_taken(monkeypatch):
    monkeypatch.setattr(Trees, "predict", lambda self, features: np.zeros(len(features)) + 9.0)
    with pytest.raises(Permanent):
        Training([SMALL]).train(busy_history(), 1.7e9)


def changed(challenger, **arrays):
    first = dataclasses.replace(challenger.trees[0][0], **arrays)
    return dataclasses.replace(
        challenger, trees=((first, *challenger.trees[0][1:]), *challenger.trees[1:])
    )


def test_trees_that_lead_nowhere_are_refused(challenger):
    challenger.check()
    one = challenger.trees[0][0]
    for bad in (
        {"left": one.left + 1000},
        {"feature": one.feature - 1},
        {"value": one.value * np.nan},
        {"baseline": float("inf")},
        {"depth": 1000},
        {"right": one.right[:1]},
    ):
        with pytest.raises(Invalid):
            changed(challenger, **bad).check()
    for trees in (challenger.trees[:2], ((one,),) * 4):
        with pytest.raises(Invalid):
            BoostedChallenger(trees=trees, trained_until_s=0.0).check()
