"""Whatever is told to the predictor, what it says is finite, ordered and bounded."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from contracts.config import PredictorConfig
from contracts.forecasts import ModelForecast
from predictor.engine import PredictorEngine
from predictor.models.count_quantiles import CountQuantiles, band_share, counts_at
from predictor.models.gap_hazard import GapHazard
from predictor.models.hedge import HedgeWeights
from predictor.models.pooled_rate import PooledRate
from predictor.windows import CountWindow
from tests.arrivals import received

START_S = 1_700_000_000.0

steps = st.lists(
    st.tuples(
        # How the clock moves: usually on, now and then back, sometimes far.
        st.one_of(
            st.floats(0.0, 120.0),
            st.floats(-7200.0, 7200.0),
            st.sampled_from([0.0, -1e6, 1e5, 1e9]),
        ),
        st.sampled_from(["a", "b", "c", "d", "e"]),
        st.sampled_from(["arrive", "arrive", "burst", "double", "late", "tick", "renew"]),
    ),
    max_size=60,
)


def check(forecast: ModelForecast) -> None:
    assert forecast.next_use is not None
    hazard = forecast.next_use.cumulative_hazard
    assert all(math.isfinite(value) and value >= 0.0 for value in hazard)
    assert list(hazard) == sorted(hazard)
    for signal in forecast.signals:
        for horizon in signal.horizons:
            assert math.isfinite(horizon.mean)
            assert horizon.mean >= 0.0
            assert all(math.isfinite(value) and value >= 0.0 for value in horizon.quantiles)
            assert list(horizon.quantiles) == sorted(horizon.quantiles)
            for figure in (
                horizon.loss,
                horizon.floor_loss,
                horizon.coverage_ratio,
                horizon.band_coverage_ratio,
                horizon.rmsse,
            ):
                assert figure is None or math.isfinite(figure)


def told(engine: PredictorEngine, number: int, now_s: float, model: str, what: str) -> None:
    """One step of a sequence; every forecast that it gives is checked."""
    forecasts: tuple[ModelForecast, ...] = ()
    match what:
        case "burst":
            for shot in range(20):
                engine.observe(received(now_s + 0.01 * shot, model, f"{number}.{shot}"))
        case "late":
            engine.observe(received(max(0.0, now_s - 300.0), model, str(number)))
        case "double":
            engine.observe(received(now_s, model, str(number)))
            engine.observe(received(now_s, model, str(number)))
        case "tick":
            forecasts = engine.tick(now_s)
        case "renew":
            forecasts = engine.renewals(now_s)
        case _:
            engine.observe(received(now_s, model, str(number)))
    for forecast in forecasts:
        check(forecast)


@given(steps)
def test_no_sequence_of_events_breaks_a_forecast(sequence: list[tuple[float, str, str]]) -> None:
    engine = PredictorEngine(PredictorConfig(max_models=3))
    now_s = START_S
    for number, (moved_s, model, what) in enumerate(sequence):
        now_s = max(0.0, now_s + moved_s)
        told(engine, number, now_s, model, what)
        assert len(engine.models) <= 3
    for forecast in engine.tick(now_s + 1e4):
        check(forecast)


@given(
    st.lists(st.floats(0.0, 1e9), max_size=30),
    st.floats(0.0, 1e9),
    st.lists(st.floats(0.0, 1e5), min_size=1, max_size=10),
)
def test_hazards_never_decrease_with_the_delay(
    gaps: list[float], age_s: float, delays: list[float]
) -> None:
    hazard = GapHazard(1)
    for gap_s in gaps:
        hazard.learn(0, gap_s)
    hazard.refresh_population(np.array([0]))
    ahead = hazard.cumulative(np.array([0]), np.array([age_s]), np.array(sorted(delays)))[0]

    assert np.isfinite(ahead).all()
    assert (np.diff(ahead) >= -1e-9 * (1.0 + ahead.max())).all()


@given(st.lists(st.tuples(st.floats(0.0, 1e9), st.floats(0.0, 1e9)), max_size=150))
def test_quantiles_are_ordered_whatever_came(pairs: list[tuple[float, float]]) -> None:
    law, row = CountQuantiles(1, 1, share=1.0), np.array([0])
    for forecast, outcome in pairs:
        expected, came = np.array([[forecast]]), np.array([outcome])
        roots = law.roots(row, expected)
        assert 0.0 <= band_share(roots[:, 0], came)[0] <= 1.0
        law.learn(row, expected, roots, came)
    for forecast in (0.0, 5.0, 1e9):
        quantiles = counts_at(law.roots(row, np.array([[forecast]])))[0, 0]
        mean = law.means(np.array([[forecast]]))[0, 0]

        assert np.isfinite(quantiles).all()
        assert (quantiles >= 0.0).all()
        assert (np.diff(quantiles) >= 0.0).all()
        assert math.isfinite(mean)
        assert mean >= 0.0


@given(
    st.lists(
        st.tuples(st.floats(-14.0, 14.0), st.floats(-8.0, 8.0), st.floats(0.0, 1e9)), max_size=80
    )
)
def test_the_shared_regression_stays_finite_whatever_came(
    seen: list[tuple[float, float, float]],
) -> None:
    pooled = PooledRate(2, share=0.2)
    for ratio, plain, outcome in seen:
        features = np.array([[1.0, ratio]])
        means = pooled.expected(features, np.array([plain]))
        assert np.isfinite(means).all()
        assert (means > 0.0).all()
        pooled.learn(features, means, np.array([outcome]))
    assert pooled.resets == 0


losses = st.one_of(st.floats(0.0, 1e9), st.just(math.nan))


@given(st.lists(st.tuples(losses, losses, losses, st.floats(0.0, 1e9)), max_size=60))
def test_weights_always_add_up(outcomes: list[tuple[float, float, float, float]]) -> None:
    hedge, row = HedgeWeights(1, np.full(3, 1.0 / 3.0), share=1.0), np.array([0])
    for *by_method, own in outcomes:
        hedge.learn(row, np.array([by_method]), np.array([own]))
        weights = hedge.of(row, np.array([[True, True, True]]))
        assert np.isfinite(weights).all()
        assert (weights >= 0.0).all()
        assert abs(weights.sum() - 1.0) < 1e-9


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1), st.floats(0.0, 500.0), st.sampled_from(["add", "pass", "back"])
        ),
        max_size=40,
    )
)
def test_every_arrival_is_counted_once_or_told_to_be_too_late(
    moves: list[tuple[int, float, str]],
) -> None:
    window = CountWindow(width_s=10.0, buckets=8, rows=2)
    kept: list[tuple[int, int]] = []
    newest, too_late = -math.inf, 0
    for row, at_s, what in moves:
        bucket = math.floor(at_s / 10.0)
        if what == "back":
            window.rewind(at_s)
            if bucket < newest:
                kept = [(r, b) for r, b in kept if b <= bucket]
                newest = bucket
            continue
        newest = max(newest, bucket)
        if what == "pass":
            window.advance(at_s, watched=True)
        else:
            window.add(row, at_s)
            if bucket > newest - 8:
                kept.append((row, bucket))
            else:
                too_late += 1
        kept = [(r, b) for r, b in kept if b > newest - 8]

    assert window.too_late == too_late
    for row in (0, 1):
        counted = sum(count or 0 for count in window.counts(row))
        assert counted == sum(1 for r, _ in kept if r == row)
