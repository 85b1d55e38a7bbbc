"""What is foretold is set right by what came of it, and how far it is from right is told."""

from __future__ import annotations

import numpy as np
import pytest

from predictor.models.reliability import Calibration, Reliability

DELAYS_S = np.array([30.0, 60.0, 300.0])


def hazard_of(probability: float) -> float:
    return float(-np.log1p(-probability))


def test_before_anything_came_nothing_is_corrected() -> None:
    calibration = Calibration(DELAYS_S)
    hazards = np.array([[0.001, 0.2, 0.9, 2.0]])

    assert calibration.correct(hazards, np.array([1.0, 30.0, 100.0, 3600.0])) == pytest.approx(
        hazards, rel=1e-6
    )


def test_a_probability_becomes_what_came_of_those_like_it() -> None:
    calibration, draw = Calibration(DELAYS_S), np.random.default_rng(1)
    for _ in range(100):
        said = np.full(100, 0.65)
        calibration.learn(1, said, draw.random(100) < 0.8)
    hazards = np.full((1, 3), hazard_of(0.65))
    right = -np.expm1(-calibration.correct(hazards, np.array([30.0, 60.0, 70.0])))[0]

    assert right[1] == pytest.approx(0.8, abs=0.03)
    assert right[0] == pytest.approx(0.65)  # of half a minute nothing was seen
    assert 0.7 < right[2] <= right[1] + 1e-9


def test_a_corrected_curve_never_falls_nor_leaves_what_was_said_too_far() -> None:
    calibration = Calibration(DELAYS_S)
    for _ in range(200):
        calibration.learn(1, np.array([0.3, 0.5, 0.9]), np.array([False, False, False]))
        calibration.learn(2, np.array([0.1, 0.2]), np.array([True, True]))
    hazards = np.cumsum(np.full((2, 20), 0.1), axis=1)
    corrected = calibration.correct(hazards, np.linspace(5.0, 3600.0, 20))

    assert np.isfinite(corrected).all()
    assert (np.diff(corrected, axis=1) >= 0.0).all()
    assert (corrected <= np.e * hazards + 1e-9).all()
    assert (corrected >= hazards / np.e - 1e-9).all()


def test_the_worst_tenth_is_told_once_enough_was_seen() -> None:
    reliability, draw = Reliability(), np.random.default_rng(2)
    at_first = reliability.worst
    for _ in range(30):
        reliability.learn(np.full(20, 0.25), draw.random(20) < 0.25)
    calm = reliability.worst
    for _ in range(30):
        reliability.learn(np.full(20, 1.0), draw.random(20) < 0.8)

    assert at_first is None
    assert calm is not None
    assert calm < 0.06
    assert reliability.worst == pytest.approx(0.2, abs=0.05)
