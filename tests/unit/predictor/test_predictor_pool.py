from __future__ import annotations

import numpy as np
import pytest

from predictor.models.experts import CONTEXTS, EXPERTS, HOUR_SLOTS, OWN_GAPS
from predictor.models.pool import HazardPool


def features_of(own: np.ndarray, slots: np.ndarray) -> np.ndarray:
    features = np.zeros((len(own), EXPERTS))
    features[:, 0] = 1.0
    features[:, OWN_GAPS] = own
    features[:, HOUR_SLOTS] = slots
    return features


def teach(pool: HazardPool, *, batches: int, seed: int = 1) -> None:
    """The minute of the hour is right, own gaps are noise; the plain rate is 0.05."""
    rng = np.random.default_rng(seed)
    for _ in range(batches):
        truth, noise = rng.normal(0.0, 1.5, 40), rng.normal(0.0, 1.5, 40)
        features = features_of(noise, truth)
        base = np.full((40, 1), np.log(0.05))
        contexts = np.zeros(40, dtype=np.intp)
        hazard = pool.hazard(features[:, :, None], base, contexts)[:, 0]
        came = rng.random(40) < -np.expm1(-0.05 * np.exp(truth))
        pool.learn(features, hazard, contexts, came)


def test_it_starts_as_own_gaps_alone() -> None:
    weights = HazardPool().weights

    assert weights.shape == (CONTEXTS, EXPERTS)
    assert (weights[:, OWN_GAPS] == 1.0).all()
    assert weights.sum() == CONTEXTS


def test_it_finds_out_which_expert_is_right() -> None:
    pool = HazardPool()
    teach(pool, batches=400)

    assert pool.weights[0, HOUR_SLOTS] == pytest.approx(1.0, abs=0.2)
    assert pool.weights[0, OWN_GAPS] == pytest.approx(0.0, abs=0.2)
    assert pool.weights[1, OWN_GAPS] == 1.0  # nothing came in the other context


def test_days_without_a_request_carry_nothing_away() -> None:
    pool = HazardPool()
    teach(pool, batches=100)
    features = features_of(np.full(40, -3.0), np.full(40, -3.0))
    contexts = np.zeros(40, dtype=np.intp)
    base = np.full((40, 1), np.log(0.05))
    for _ in range(20_000):
        hazard = pool.hazard(features[:, :, None], base, contexts)[:, 0]
        pool.learn(features, hazard, contexts, np.zeros(40, dtype=bool))

    assert np.abs(pool.weights).max() < 3.0
    assert pool.hazard(features[:, :, None], base, contexts).max() < 0.05


def test_what_was_learned_fades_towards_the_prior() -> None:
    pool = HazardPool()
    teach(pool, batches=200)
    learned = abs(pool.weights[0, OWN_GAPS] - 1.0)
    nothing = features_of(np.zeros(0), np.zeros(0))
    for _ in range(20_000):
        pool.learn(nothing, np.zeros(0), np.zeros(0, dtype=np.intp), np.zeros(0, dtype=bool))

    assert abs(pool.weights[0, OWN_GAPS] - 1.0) < 0.1 * learned


@pytest.mark.parametrize("hazard", [1e-300, 1e-6, 1.0, 50.0, 1e6])
@pytest.mark.parametrize("came", [True, False])
def test_no_outcome_however_unlikely_breaks_it(hazard: float, *, came: bool) -> None:
    pool = HazardPool()
    features = features_of(np.array([10.0]), np.array([-10.0]))
    for _ in range(50):
        pool.learn(features, np.array([hazard]), np.array([0]), np.array([came]))

    assert np.isfinite(pool.weights).all()


def test_pooled_hazards_never_decrease_with_the_delay() -> None:
    pool = HazardPool()
    features = np.zeros((1, EXPERTS, 3))
    features[0, OWN_GAPS] = [2.0, 0.0, -1.0]
    pooled = pool.hazard(features, np.log([[0.1, 0.2, 0.3]]), np.array([0]))

    assert (np.diff(pooled) >= 0.0).all()
