"""The challenger in the engine: one more method, published when it was promoted."""

from __future__ import annotations

import numpy as np
import pytest

from contracts.config import PredictorConfig
from contracts.events import PriorityClass, RequestReceived
from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS, ForecastStatus, Signal
from contracts.ids import ModelId, RequestId
from predictor.champion import in_champions_words
from predictor.engine import PredictorEngine
from predictor.models.boosted import METHOD, Boosted, mean_of
from predictor.opinions import MIXTURE
from predictor.windows import CountWindow

HOUR_S = 3600.0
START_S = 1_700_000_040.0
SHAPE = (len(HORIZONS_S), len(QUANTILE_LEVELS))


def request(at_s, model="a"):
    return RequestReceived(
        event_id=f"{model}{at_s}",
        at_s=START_S + at_s,
        source="test",
        request_id=RequestId(f"{model}{at_s}"),
        model=ModelId(model),
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="",
        stream=False,
    )


class Says:
    """The same of every model, and remembers what it was shown."""

    minutes_needed = 1502

    def __init__(self, *counts):
        self.counts = np.array(counts, dtype=float)
        self.shown = []

    def quantiles(self, minutes, end_s):
        self.shown.append((minutes, end_s))
        return np.tile(self.counts, (len(minutes), len(HORIZONS_S), 1))


def told(*, until_s=2 * HOUR_S, challenger=None, promoted=False, models=("a", "b")):
    engine = PredictorEngine(PredictorConfig(publish_s=60.0))
    engine.take_challenger(challenger, promoted=promoted)
    events = sorted(
        (
            request(at_s, model)
            for number, model in enumerate(models)
            for at_s in np.arange(0.0, until_s, 400.0 + 300.0 * number).tolist()
        ),
        key=lambda event: event.at_s,
    )
    for event in events:
        engine.pass_time(event.at_s, steps=10_000)
        engine.observe(event)
    return engine


def arrivals(engine, now_s):
    return [forecast.signal(Signal.ARRIVALS) for forecast in engine.tick(START_S + now_s)]


def test_a_promoted_challenger_is_published_in_its_own_words():
    engine = told(challenger=Says(1, 2, 3, 4), promoted=True)
    assert engine.champion == METHOD
    for forecast in arrivals(engine, 2 * HOUR_S):
        for horizon in forecast.horizons:
            if horizon.status is not ForecastStatus.DEGRADED:
                assert horizon.method == METHOD
                assert horizon.quantiles == (1.0, 2.0, 3.0, 4.0)
                assert horizon.mean == pytest.approx(2.0)


def test_one_that_was_not_promoted_is_a_method_among_others():
    engine = told(challenger=Says(0, 1, 1, 2))
    assert engine.champion == MIXTURE
    for forecast in arrivals(engine, 2 * HOUR_S):
        assert METHOD not in {horizon.method for horizon in forecast.horizons}
    opinions = engine.arrival_opinions(START_S + 2 * HOUR_S)
    assert opinions is not None
    place = opinions.methods.index(METHOD)
    assert np.isfinite(opinions.means[:, place]).all()


def test_without_one_the_method_is_mute_and_nothing_else_changes():
    engine = told()
    opinions = engine.arrival_opinions(START_S + 2 * HOUR_S)
    assert opinions is not None
    assert np.isnan(opinions.means[:, opinions.methods.index(METHOD)]).all()
    for forecast in arrivals(engine, 2 * HOUR_S):
        for horizon in forecast.horizons:
            assert METHOD not in dict(horizon.weights)


def test_it_goes_as_it_came():
    engine = told(challenger=Says(1, 2, 3, 4), promoted=True)
    engine.take_challenger(None)
    assert engine.champion == MIXTURE
    for forecast in arrivals(engine, 2 * HOUR_S):
        assert METHOD not in {horizon.method for horizon in forecast.horizons}


def test_an_engine_without_signals_takes_none():
    engine = PredictorEngine(PredictorConfig(), signals=False)
    engine.take_challenger(Says(1, 2, 3, 4), promoted=True)
    assert engine.champion == MIXTURE


def test_it_is_shown_whole_minutes_that_have_ended():
    challenger = Says(0, 0, 1, 1)
    engine = told(challenger=challenger, models=("a",))
    challenger.shown.clear()
    engine.observe(request(2 * HOUR_S + 61.0))
    engine.tick(START_S + 2 * HOUR_S + 130.0)
    minutes, end_s = challenger.shown[-1]
    assert end_s % 60.0 == 0.0
    assert end_s <= START_S + 2 * HOUR_S + 130.0
    assert minutes.shape == (1, 1502)
    known = minutes[0][np.isfinite(minutes[0])]
    expected = sum(at_s < end_s - START_S for at_s in range(0, int(2 * HOUR_S), 400))
    assert known.sum() == expected + (end_s - START_S > 2 * HOUR_S + 61.0)


def window_of(counts):
    window = CountWindow(width_s=60.0, buckets=10, rows=2)
    for minute, count in enumerate(counts):
        window.advance(minute * 60.0, watched=True)
        for _ in range(count):
            window.add(0, minute * 60.0)
    return window


ROWS = np.array([0, 1])


def test_a_window_as_a_matrix_knows_what_is_missing():
    assert np.isnan(window_of([]).matrix(ROWS, 60.0, 3)).all()
    window = window_of([0, 2, 0, 1])
    found = window.matrix(ROWS, 240.0, 6)
    assert np.isnan(found[1]).all()
    assert np.isnan(found[0, :3]).all()  # before the first request nobody watched for it
    assert found[0, 3:].tolist() == [2.0, 0.0, 1.0]
    # Neither the bucket that is not there yet nor those that are not kept any more.
    assert np.isnan(window.matrix(ROWS, 300.0, 1)).all()
    long = window_of([1] * 12)
    assert np.isfinite(long.matrix(ROWS, 720.0, 12)[0]).tolist() == [False] * 2 + [True] * 10


def no_minutes(rows, end_s, length):
    return np.zeros((len(rows), length))


def test_it_is_asked_once_a_minute_and_kept_in_order():
    boosted, challenger = Boosted(2), Says(3, 1, np.nan, 9)
    boosted.take(challenger)
    assert np.isnan(boosted.quantiles(ROWS, 60.0, no_minutes)).all()
    challenger.counts = np.array([-3.0, 1.0, 0.0, 9.0])
    said = boosted.quantiles(ROWS, 119.0, no_minutes)
    assert np.isnan(said).all()  # still the same minute
    said = boosted.quantiles(ROWS, 120.0, no_minutes)
    assert said[0, 0].tolist() == [0.0, 1.0, 1.0, 9.0]
    boosted.clear(1)
    boosted.quantiles(ROWS, 130.0, no_minutes)
    assert [len(minutes) for minutes, _ in challenger.shown] == [2, 2, 1]
    boosted.grow(4)
    assert boosted.quantiles(np.arange(4), 130.0, no_minutes).shape == (4, *SHAPE)
    assert boosted.expected(ROWS, 130.0, no_minutes)[0, 0] == pytest.approx(0.4 + 0.3)
    boosted.take(None)
    assert np.isnan(boosted.quantiles(ROWS, 130.0, no_minutes)).all()


def test_the_floor_and_what_is_not_known_stay_in_the_mixtures_words():
    (forecast,) = arrivals(told(models=("a",)), 2 * HOUR_S)
    quantiles = np.full((1, *SHAPE), 7.0)
    quantiles[0, 1] = np.nan
    (changed,) = in_champions_words([forecast], quantiles)
    for number, (before, after) in enumerate(zip(forecast.horizons, changed.horizons, strict=True)):
        stays = number == 1 or before.status is ForecastStatus.DEGRADED
        assert (after == before) is stays
    assert mean_of(quantiles)[0, 0] == pytest.approx(7.0)
