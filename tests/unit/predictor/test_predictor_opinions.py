"""All methods side by side, as backtests look at them."""

from __future__ import annotations

import random
from collections.abc import Callable

import numpy as np

from contracts.config import PredictorConfig
from contracts.forecasts import Signal
from predictor.engine import PredictorEngine
from predictor.opinions import MIXTURE

START_S = 1_000_000.0 - 1_000_000.0 % 3600.0


def fed(drive: Callable[..., object], *, signals: bool = True) -> PredictorEngine:
    engine, rng = PredictorEngine(PredictorConfig(), signals=signals), random.Random(1)
    arrivals = [(START_S + 7_000.0 * rng.random(), f"m{rng.randrange(4)}") for _ in range(300)]
    drive(engine, arrivals, START_S + 7_000.0)
    return engine


def test_the_mixture_comes_first_and_is_what_is_published(drive: Callable[..., object]) -> None:
    engine = fed(drive)
    opinions = engine.arrival_opinions(START_S + 7_010.0)
    published = {forecast.model: forecast for forecast in engine.tick(START_S + 7_010.0)}

    assert opinions is not None
    assert opinions.methods[0] == MIXTURE
    assert {"naive_last_value", "naive_seasonal"} <= set(opinions.methods)
    for model, quantiles in zip(opinions.models, opinions.quantiles[:, 0], strict=True):
        arrivals = published[model].signal(Signal.ARRIVALS)
        assert arrivals is not None
        assert [list(horizon.quantiles) for horizon in arrivals.horizons] == quantiles.tolist()


def test_curves_of_each_expert_stand_beside_the_published_one(
    drive: Callable[..., object],
) -> None:
    engine = fed(drive)
    opinions = engine.use_opinions(START_S + 7_005.0)
    next_use = engine.next_use(opinions.models[0], START_S + 7_005.0)

    assert next_use is not None
    assert opinions.methods[0] == MIXTURE
    assert list(next_use.cumulative_hazard) == opinions.hazards[0, 0].tolist()
    assert (np.diff(opinions.hazards, axis=2) >= 0.0).all()


def test_without_signals_or_models_there_is_nothing_to_compare(
    drive: Callable[..., object],
) -> None:
    assert fed(drive, signals=False).arrival_opinions(START_S) is None
    assert PredictorEngine(PredictorConfig()).arrival_opinions(START_S) is None
