"""Many curves at once say what each says alone."""

from __future__ import annotations

import math

import numpy as np
import pytest

from contracts.forecasts import ForecastStatus, ModelForecast
from contracts.ids import ModelId
from controller.policies.curves import CurveBoard
from tests.worlds import A, B, C, curve


def told(*forecasts):
    return {forecast.model: forecast for forecast in forecasts}


@pytest.mark.parametrize("now_s", [90.0, 100.0, 107.5, 159.0])
@pytest.mark.parametrize(("start_s", "end_s"), [(0.0, 45.0), (6.0, 53.0), (0.5, 0.75), (0.0, 9e9)])
def test_as_the_curve_itself(now_s, start_s, end_s):
    forecasts = told(curve(A, {4: 0.2, 60: 1.5}), curve(B, {1: 0.1, 3600: 4.0}))
    board = CurveBoard()
    found = board.probability(board.rows([B, A], forecasts), now_s, start_s, end_s)
    assert found == pytest.approx(
        [forecasts[m].next_use.probability_between(now_s, start_s, end_s) for m in (B, A)]
    )


def test_usable_until_it_expires_unless_missing_and_timely_unless_degraded():
    degraded = curve(B, {20: 1.0}, status=ForecastStatus.DEGRADED)
    silent = ModelForecast(model=C, next_use=None, signals=())
    board = CurveBoard()
    rows = board.rows([A, B, C, ModelId("d")], told(curve(A, {20: 1.0}), degraded, silent))
    assert board.usable(rows, 159.9).tolist() == [True, True, False, False]
    assert board.timely(rows, 159.9).tolist() == [True, False, False, False]
    assert board.usable(rows, 160.0).tolist() == [False] * 4
    assert board.probability(rows, 100.0, 0.0, 60.0).tolist()[2:] == [0.0] * 2


def test_a_curve_that_is_renewed_or_withdrawn_is_followed():
    board = CurveBoard()
    first = board.rows([A], told(curve(A, {20: 1.0})))
    assert board.probability(first, 100.0, 0.0, 60.0)[0] == pytest.approx(-math.expm1(-1.0))
    again = board.rows([A], told(curve(A, {20: 3.0})))
    assert again.tolist() == first.tolist()
    assert board.probability(again, 100.0, 0.0, 60.0)[0] == pytest.approx(-math.expm1(-3.0))
    assert not board.usable(board.rows([A], {}), 100.0).any()
    worse = curve(A, {20: 3.0}, status=ForecastStatus.DEGRADED).next_use
    lost = {A: ModelForecast(model=A, next_use=worse, signals=())}
    assert not board.timely(board.rows([A], lost), 100.0).any()


def test_any_number_of_models_and_those_that_are_gone_are_let_go():
    board = CurveBoard()
    names = [ModelId(f"m{number}") for number in range(500)]
    forecasts = told(*(curve(name, {20: 0.01 * number}) for number, name in enumerate(names)))
    found = board.probability(board.rows(names, forecasts), 100.0, 0.0, 60.0)
    assert found == pytest.approx(-np.expm1(-0.01 * np.arange(500)))
    few = names[:3]
    left = {name: forecasts[name] for name in few}
    assert board.rows(few, left).tolist() == [0, 1, 2]
    assert board.probability(board.rows(few, left), 100.0, 0.0, 60.0) == pytest.approx(found[:3])
