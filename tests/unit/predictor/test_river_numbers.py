"""River's estimators as plain numbers: those made of them go on as the ones they are of."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from river import drift, linear_model, optim, preprocessing

from contracts.errors import Invalid
from predictor.models.drift import fresh_detector
from predictor.models.river_season import SLOTS, fresh_season
from predictor.object_codec import Kind
from predictor.river_numbers import KINDS

KIND_OF: dict[type, Kind] = {kind.cls: kind for kind in KINDS}


def made_again(estimator: Any) -> Any:
    kind = KIND_OF[type(estimator)]
    return kind.make(kind.take(estimator))


def told(count: int, *, shift: float = 0.0) -> Any:
    rng = random.Random(7)
    detector = fresh_detector()
    for number in range(count):
        detector.update(rng.random() + shift * (number > count / 2))
    return detector


@pytest.mark.parametrize(("count", "shift"), [(0, 0.0), (1, 0.0), (7, 0.0), (900, 0.0), (384, 3.0)])
def test_a_detector_goes_on_in_its_window(count: int, shift: float) -> None:
    rng = random.Random(8)
    one = told(count, shift=shift)
    other = made_again(one)
    assert other.drift_detected == one.drift_detected
    for _ in range(500):
        value = rng.random() * 4.0
        one.update(value)
        other.update(value)
        assert (one.drift_detected, one.estimation, one.variance, one.n_detections) == (
            other.drift_detected,
            other.estimation,
            other.variance,
            other.n_detections,
        )


def test_a_detector_of_another_kind_is_not_written() -> None:
    with pytest.raises(Invalid, match="not what it is known to be"):
        KIND_OF[drift.ADWIN].take(drift.ADWIN(delta=0.1))


NUMBERS = st.integers(-9, 9) | st.floats(-9.0, 9.0) | st.integers(2**31 - 1, 2**70) | st.none()


@given(
    st.lists(st.tuples(st.integers(0, 7), NUMBERS), max_size=2),
    st.integers(-1, 8),
    st.integers(-1, 8),
    st.sampled_from([0, 1, 7, 90]),
)
def test_a_window_that_none_can_have_is_refused_and_any_other_goes_on(
    edits: list[tuple[int, Any]], row: int, used: int, count: int
) -> None:
    kind = KIND_OF[drift.ADWIN]
    has_drifted, sums, rows = kind.take(told(count))
    for place, number in edits:
        sums[place] = number
    if 0 <= row < len(rows) and used >= 0:
        rows[row] = [[0.5] * used, [0.1] * used]
        sums[2] = float(sum(len(totals) << place for place, (totals, _) in enumerate(rows)))
    with suppress(Exception):  # the codec makes them Invalid; a panic is none
        made = kind.make((has_drifted, sums, rows))
        for number in range(200):
            made.update(4.0 * (number > 100))


@pytest.mark.parametrize(
    ("place", "value"),
    [(0, 1), (1, [0.0, 0.0, 2.0, 1.0, 1, 1, 1, 0]), (2, []), (2, [[[0.5], [0.1]]] * 49)],
)
def test_impossible_windows_are_told(place: int, value: object) -> None:
    kind = KIND_OF[drift.ADWIN]
    numbers = list(kind.take(told(1)))
    numbers[place] = value
    with pytest.raises(Invalid, match="none can have"):
        kind.make(numbers)


@pytest.mark.parametrize("count", [1, SLOTS - 1, SLOTS, 3 * SLOTS])
def test_a_season_goes_on(count: int) -> None:
    rng = random.Random(9)
    one = fresh_season()
    for _ in range(count):
        one.learn_one(rng.random())
    other = made_again(one)
    for _ in range(SLOTS):
        value = rng.random()
        one.learn_one(value)
        other.learn_one(value)
    assert one.forecast(5) == other.forecast(5)
    assert other.season.maxlen == one.season.maxlen


def test_a_scaler_and_a_regression_go_on() -> None:
    rng = random.Random(10)
    scaler: Any = preprocessing.StandardScaler()
    regression: Any = linear_model.LinearRegression(optimizer=optim.SGD(0.02), intercept_lr=0.05)
    pairs = [(scaler, regression)]
    for number in range(60):
        seen, outcome = {"a": rng.random(), "b": rng.random() * 9.0}, rng.random()
        if number == 30:
            pairs.append((made_again(scaler), made_again(regression)))
        said = set()
        for each_scaler, each in pairs:
            each_scaler.learn_one(seen)
            scaled = each_scaler.transform_one(seen)
            said.add(each.predict_one(scaled))
            each.learn_one(scaled, outcome)
        assert len(said) == 1
