from __future__ import annotations

import io
import random

import numpy as np
import pytest

from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from predictor.evaluation import ArrivalScores, Losses, UseScores, pinball_loss
from predictor.learned_kinds import KINDS
from predictor.models.decayed_rates import DecayedRates
from predictor.models.demand import METHODS, DemandForecaster
from predictor.models.drift import DriftWatch
from predictor.object_codec import write

ROW = np.array([0])
HOUR_S = 3600.0
DAY_S = 86_400.0


def losses_of(*, mixture: float, floor: float) -> Losses:
    """One outcome that cost so much, and lay in the band."""
    one, other = np.array([mixture]), np.array([floor])
    return Losses(
        mixture=one,
        last=other,
        seasonal=np.array([np.nan]),
        floor=other,
        error=one**2,
        last_error=other**2,
        under=np.array([True]),
        inside=np.array([1.0]),
    )


class Counted:
    """A demand forecaster of one model and its rates, led through time."""

    def __init__(self, start_s: float) -> None:
        self.rates = DecayedRates(2)
        self.demand = DemandForecaster(2, self.rates)
        self.now_s = start_s

    def pass_time(self, until_s: float, arrivals: list[float], step_s: float = 60.0) -> None:
        arrivals = sorted(arrivals)
        while self.now_s < until_s:
            self.now_s += step_s
            while arrivals and arrivals[0] < self.now_s:
                at_s = arrivals.pop(0)
                self.rates.add(0, at_s)
                self.demand.add(0, at_s)
            self.demand.advance(ROW, self.now_s, watched=True)


def seasonal_arrivals(days: int, rng: random.Random) -> list[float]:
    """Quiet nights, busy days, one break at noon."""
    arrivals = []
    for minute in range(days * 24 * 60):
        hour = minute / 60 % 24
        rate = 3.0 if 8 <= hour < 12 or 13 <= hour < 18 else 0.1
        arrivals += [60.0 * minute + 60.0 * rng.random() for _ in range(poisson(rate, rng))]
    return arrivals


def poisson(rate: float, rng: random.Random) -> int:
    count, total = 0, rng.expovariate(1.0)
    while total < rate:
        count += 1
        total += rng.expovariate(1.0)
    return count


def test_the_mixture_beats_the_floor_where_days_repeat_and_is_published() -> None:
    counted = Counted(0.0)
    ten_o_clock_s = 9 * DAY_S + 10 * HOUR_S
    counted.pass_time(ten_o_clock_s, seasonal_arrivals(10, random.Random(3)), step_s=600.0)
    forecasts = counted.demand.forecast(ROW, counted.now_s)

    assert forecasts.ready.all()
    assert not forecasts.degraded.any()
    assert (forecasts.losses[0, :3] < 0.95 * forecasts.floor_losses[0, :3]).all()
    assert forecasts.losses[0, 3] < 1.05 * forecasts.floor_losses[0, 3]
    assert 150.0 < forecasts.means[0, 3] < 210.0  # three a minute
    low, middle, high, highest = forecasts.quantiles[0, 3]
    assert 120.0 < low < middle < high < highest < 260.0
    assert forecasts.coverage[0, 0] == pytest.approx(0.9, abs=0.08)
    assert forecasts.band_coverage[0] == pytest.approx([0.8] * 4, abs=0.12)
    assert (forecasts.rmsse[0] < 1.05).all()
    assert forecasts.weights[0].sum(axis=1) == pytest.approx([1.0] * 4)


def test_where_the_mixture_loses_the_floor_is_published_and_it_says_so() -> None:
    counted = Counted(0.0)
    counted.pass_time(DAY_S, [60.0 * minute + 1.0 for minute in range(24 * 60)], step_s=600.0)
    for horizon in range(len(HORIZONS_S)):
        for _ in range(50):
            counted.demand._scores.learn(ROW, horizon, losses_of(mixture=8.0, floor=0.0))
    forecasts = counted.demand.forecast(ROW, counted.now_s)

    assert forecasts.degraded.all()
    assert METHODS[int(forecasts.floor[0, 0])].startswith("naive")
    assert forecasts.quantiles[0, 0, 1] == 1.0


def test_a_model_that_was_just_seen_is_forecast_as_the_population_is() -> None:
    counted = Counted(1000.0)
    counted.pass_time(1120.0, [1010.0])
    forecasts = counted.demand.forecast(ROW, counted.now_s)

    assert not forecasts.ready.any()
    assert forecasts.weights[0, :, 0].min() >= 0.5  # the regression that all models share
    assert np.isnan(forecasts.losses[0, 3])
    assert (forecasts.means > 0.0).all()
    assert np.isfinite(forecasts.quantiles).all()


def test_yesterday_becomes_the_floor_where_it_was_the_better_guess() -> None:
    counted = Counted(0.0)
    arrivals = [
        DAY_S * day + HOUR_S * hour + 7.0 * call
        for day in range(4)
        for hour in range(0, 24, 2)
        for call in range(40)
    ]
    counted.pass_time(4 * DAY_S, arrivals, step_s=600.0)
    scores = counted.demand._scores

    assert scores.prefers_seasonal(ROW)[0, 3]


def test_a_change_of_habits_shortens_memory() -> None:
    counted, rng = Counted(0.0), random.Random(8)
    quiet = [DAY_S * 2 * rng.random() for _ in range(60)]
    counted.pass_time(2 * DAY_S, quiet, step_s=300.0)
    before = counted.demand.drifts
    busy = [2 * DAY_S + DAY_S * rng.random() for _ in range(20_000)]
    counted.pass_time(3 * DAY_S, busy, step_s=300.0)

    assert before == 0
    assert counted.demand.drifts > 0
    assert counted.demand.forecast(ROW, counted.now_s).means[0, 1] == pytest.approx(69.0, rel=0.3)


def test_what_is_kept_does_not_grow_with_the_changes_of_habits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each look finds one, 288 a day; what is counted for a day is full after the first."""
    monkeypatch.setattr(DriftWatch, "changed", lambda *_about: True)
    counted = Counted(0.0)

    def kept_bytes() -> int:
        file = io.BytesIO()
        write(counted.demand, KINDS, file)
        return len(file.getvalue())

    arrivals = [30.0 * number for number in range(50 * 120)]
    counted.pass_time(26 * HOUR_S, arrivals[: 26 * 120], step_s=300.0)
    early = kept_bytes()
    counted.pass_time(50 * HOUR_S, arrivals[26 * 120 :], step_s=300.0)
    assert kept_bytes() < early + 48


def test_forecasts_of_a_row_that_changed_hands_teach_nothing() -> None:
    counted = Counted(0.0)
    counted.pass_time(1800.0, [float(second) for second in range(0, 1800, 5)])
    counted.demand.clear(0)
    counted.rates.clear(0)
    counted.pass_time(1860.0, [])

    assert not counted.demand._scores.ready(ROW).any()
    assert np.isnan(counted.demand._scores.mean_loss(ROW)).all()


def test_a_clock_that_is_set_back_voids_what_waits_and_goes_on() -> None:
    counted = Counted(10_000.0)
    counted.pass_time(12_000.0, [10_000.0 + 7.0 * call for call in range(200)])
    counted.demand.rewind(11_000.0)
    counted.now_s = 11_000.0
    counted.pass_time(13_000.0, [11_000.0 + 7.0 * call for call in range(200)])

    assert np.isfinite(counted.demand.forecast(ROW, counted.now_s).quantiles).all()
    assert counted.demand.too_late == 0
    assert counted.demand.resets == 0


def test_room_is_made_for_more_models() -> None:
    counted = Counted(0.0)
    counted.pass_time(600.0, [1.0, 100.0])
    counted.demand.grow(5)
    counted.rates.grow(5)
    counted.demand.pick(0, 600.0)
    counted.demand.list_all(600.0)
    counted.rates.add(4, 600.0)
    counted.demand.add(4, 600.0)
    counted.demand.advance(np.array([0, 4]), 700.0, watched=True)

    assert counted.demand.forecast(np.array([0, 4]), 700.0).means.shape == (2, len(HORIZONS_S))


def test_pinball_loss_is_least_at_the_outcome() -> None:
    right = pinball_loss(np.array([[5.0] * 4]), np.array([5.0]))
    under = pinball_loss(np.array([[4.0] * 4]), np.array([5.0]))

    assert right.tolist() == [0.0]
    assert under.tolist() == [pytest.approx(sum(QUANTILE_LEVELS) / 4)]


def test_degraded_ends_only_when_the_floor_is_no_longer_better() -> None:
    scores = ArrivalScores(1)

    def outcome(mixture: float, floor: float, times: int = 1) -> bool:
        for _ in range(times):
            scores.learn(ROW, 0, losses_of(mixture=mixture, floor=floor))
        return bool(scores.degraded(ROW)[0, 0])

    assert not outcome(2.0, 1.0, times=3)  # before enough was seen a comparison is chance
    assert outcome(2.0, 1.0, times=27)
    assert outcome(1.0, 25.0)  # still a little behind: no flapping
    assert not outcome(1.0, 10.0)
    assert not outcome(1.01, 1.0)
    assert scores.rmsse(ROW)[0, 0] > 0.0
    scores.grow(2)
    scores.clear(0)
    assert np.isnan(scores.mean_loss(np.array([0, 1]))).all()
    assert np.isnan(scores.coverage(np.array([0]))).all()


def test_a_curve_that_foretells_worse_than_the_base_rate_is_degraded_until_it_does_not() -> None:
    scores = UseScores(2)
    rng = random.Random(2)
    assert np.isnan(scores.briers(ROW)).all()
    for _ in range(200):
        came = rng.random() < 0.2
        wrong = np.array([[0.9 * (not came)] * 2, [0.9 * came] * 2])
        scores.learn(np.array([0, 1]), wrong, np.array([[came, came]] * 2))

    assert scores.degraded(np.array([0, 1])).tolist() == [True, False]
    brier, floor = scores.briers(ROW)
    assert brier[0] > floor[0]
    assert scores.base_rate(ROW)[0] == pytest.approx(0.2, abs=0.08)
    for _ in range(3000):
        came = rng.random() < 0.2
        scores.learn(ROW, np.array([[0.9 * came] * 2]), np.array([[came, came]]))
    assert not scores.degraded(ROW)[0]
    scores.grow(3)
    scores.clear(0)
    assert np.isnan(scores.briers(ROW)).all()
