"""The walk forward: what is asked when, and that nothing later is known."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from contracts.config import PredictorConfig
from contracts.errors import Invalid
from contracts.events import FirstTokenSent, PriorityClass, RequestReceived
from contracts.forecasts import HORIZONS_S, QUANTILE_LEVELS
from contracts.ids import ModelId, RequestId
from predictor.backtest import (
    NAIVE_LAST_VALUE,
    NAIVE_SEASONAL,
    BacktestPlan,
    plan_for,
    walk_forward,
)
from predictor.backtest_history import MAX_CELLS, MINUTE_S, History
from predictor.models.boosted import METHOD as BOOSTED
from predictor.opinions import MIXTURE

HOUR_S = 3600.0
START_S = 1_699_999_980.0
CONFIG = PredictorConfig(publish_s=60.0)


def request(at_s, model="a", **more):
    return RequestReceived(
        event_id=f"{model}{at_s}",
        at_s=START_S + at_s,
        source="test",
        request_id=RequestId(f"{model}{at_s}"),
        model=model,
        operation="chat",
        priority=PriorityClass.REALTIME,
        client="",
        stream=False,
        **more,
    )


def each(period_s, until_s, *, model="a", first_s=0.0):
    return [request(at_s, model) for at_s in np.arange(first_s, until_s, period_s).tolist()]


def merged(*series):
    return sorted((event for events in series for event in events), key=lambda e: e.at_s)


def plan(**changed):
    return dataclasses.replace(
        BacktestPlan(workload="w", warm_up_s=2 * HOUR_S, season_s=HOUR_S, config=CONFIG), **changed
    )


def of(result, method, horizon_s):
    return next(r for r in result.rows if (r.method, r.horizon_s) == (method, horizon_s))


def test_a_row_for_every_method_and_horizon():
    shares: list[float] = []
    result = walk_forward(
        plan(),
        merged(each(300.0, 5 * HOUR_S), each(1000.0, 5 * HOUR_S, model="b", first_s=30.0)),
        progress=shares.append,
    )
    methods = {row.method for row in result.rows}
    assert {MIXTURE, NAIVE_SEASONAL, NAIVE_LAST_VALUE, "river_linear", "own_gaps"} <= methods
    assert len(result.rows) == len(methods) * len(HORIZONS_S)
    assert BOOSTED not in methods
    assert of(result, NAIVE_SEASONAL, 300.0).use is None
    assert of(result, "own_gaps", 300.0).arrivals is None
    assert result.models == 2
    assert shares == sorted(shares)
    assert 0.9 < shares[-1] <= 1.0


def test_the_seasonal_naive_forecast_of_what_repeats_is_never_wrong():
    result = walk_forward(plan(), each(300.0, 6 * HOUR_S))
    row = of(result, NAIVE_SEASONAL, 300.0)
    assert row.arrivals is not None
    assert row.arrivals.scaled_pinball is None
    assert row.arrivals.coverage_80_closed == 1.0


def test_what_comes_later_changes_nothing_that_was_said_before():
    early = merged(each(400.0, 5 * HOUR_S), each(77.0, 4 * HOUR_S, model="b"))
    later = each(3.0, 9 * HOUR_S, model="b", first_s=5.5 * HOUR_S)
    alone = walk_forward(plan(), early)
    followed = walk_forward(plan(), [*early, *later])
    until_s = START_S + 5 * HOUR_S - 300.0
    for band in alone.bands:
        (other,) = (b for b in followed.bands if b.model == band.model)
        said = [q for at_s, q in zip(band.at_s, band.quantiles, strict=True) if at_s <= until_s]
        assert said == list(other.quantiles[: len(said)])
        assert len(said) > 5


class Oracle:
    """Says three for every model, and writes down what it was shown."""

    minutes_needed = 90

    def __init__(self):
        self.shown = []

    def quantiles(self, minutes, end_s):
        self.shown.append((minutes.copy(), end_s))
        return np.full((len(minutes), len(HORIZONS_S), len(QUANTILE_LEVELS)), 3.0)


def test_a_challenger_is_trained_on_what_has_ended_and_asked_beside_the_others():
    trained, oracle = [], Oracle()

    def train(minutes, end_s):
        trained.append((minutes, end_s))
        return oracle if len(trained) > 1 else None

    events = merged(each(250.0, 5 * HOUR_S), each(700.0, 5 * HOUR_S, model="b", first_s=HOUR_S))
    result = walk_forward(plan(trainer=train, retrain_s=HOUR_S), events)
    row = of(result, BOOSTED, 300.0)
    assert row.arrivals is not None
    assert row.use is None
    # Before its second training it had nothing to say.
    assert 0.2 < row.arrivals.mute_ratio < 0.6
    assert row.arrivals.scaled_pinball is not None
    for minutes, end_s in trained:
        assert minutes.shape == (2, round((end_s - START_S) / MINUTE_S))
        assert np.isnan(minutes[1, :60]).all()
        assert np.isfinite(minutes[0]).all()
    minutes, end_s = oracle.shown[0]
    assert minutes.shape == (2, 90)
    expected = [
        sum(end_s - 90 * MINUTE_S <= e.at_s < end_s for e in events if e.model == name)
        for name in ("a", "b")
    ]
    assert sorted(minutes.sum(axis=1).tolist()) == sorted(expected)


def test_where_nothing_can_be_said_yet_nothing_is_scored():
    # The first look comes before the first request has been told.
    result = walk_forward(plan(warm_up_s=0.0, season_s=0.0), each(600.0, 3 * HOUR_S))
    assert of(result, MIXTURE, 3600.0).looks == 1


def test_a_history_shorter_than_the_horizon_has_no_row_for_it():
    result = walk_forward(plan(warm_up_s=0.0), each(60.0, 900.0, first_s=30.0))
    assert of(result, MIXTURE, 3600.0).looks == 0
    assert of(result, MIXTURE, 60.0).looks > 0


def test_the_busiest_models_are_drawn():
    series = [each(100.0 + 50 * n, 3 * HOUR_S, model=f"m{n}") for n in range(6)]
    result = walk_forward(plan(), merged(*series))
    assert [band.model for band in result.bands] == ["m0", "m1", "m2", "m3"]
    assert all(len(band.at_s) == len(band.quantiles) == len(band.came) for band in result.bands)


def test_nothing_but_the_first_look_leaves_no_rows():
    assert walk_forward(plan(), [request(0.0)]).rows == ()


def test_season_and_warm_up_follow_the_length():
    long = plan_for("w", History.of([request(0.0), request(3 * 86_400.0)]), CONFIG)
    assert (long.season_s, long.warm_up_s) == (86_400.0, 86_400.0)
    short = plan_for("w", History.of([request(0.0), request(86_400.0 - 30)]), CONFIG)
    assert (short.season_s, short.warm_up_s) == (HOUR_S, 3 * HOUR_S)


def test_a_history_counts_demand_alone():
    events = [
        request(0.0),
        request(1.0, is_retry=True),
        request(2.0, is_deferrable=True),
        request(3.0, None),
        FirstTokenSent(
            event_id="f",
            at_s=START_S + 4,
            source="t",
            request_id=RequestId("r"),
            model=ModelId("z"),
            ttft_s=1.0,
        ),
        request(65.0),
    ]
    history = History.of(events)
    assert history.models == ("a",)
    assert history.totals().tolist() == [2.0]
    rows = history.rows([ModelId("a")])
    assert history.counts(rows, START_S, 60.0).tolist() == [1.0]
    assert history.counts(rows, START_S - 600.0, 660.0).tolist() == [1.0]
    assert history.counts(rows, START_S + 60.0, 600.0).tolist() == [1.0]


def test_minutes_before_the_start_are_not_known():
    history = History.of([request(0.0), request(120.0, "b")])
    minutes = history.minutes_until(START_S + 180.0, length=5)
    assert np.isnan(minutes[:, :2]).all()
    assert minutes[0, 2:].tolist() == [1.0, 0.0, 0.0]
    assert np.isnan(minutes[1, 2:4]).all()
    assert minutes[1, 4] == 1.0


@pytest.mark.parametrize(
    "events",
    [
        [],
        [request(0.0, None)],
        [request(0.0), request(500 * 86_400.0)],
        [request(60.0 * n, f"m{n}") for n in range(MAX_CELLS // 400_000)] + [request(24e6)],
    ],
)
def test_what_cannot_be_judged_is_refused(events):
    with pytest.raises(Invalid):
        History.of(events)
