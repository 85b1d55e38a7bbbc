"""Requests as events, and an engine led through time as the simulation leads it."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from contracts.events import RequestReceived
from contracts.forecasts import ModelForecast
from predictor.engine import PredictorEngine
from tests import arrivals


def make_received(model: str, at_s: float, event_id: str | None = None) -> RequestReceived:
    return arrivals.received(at_s, model, event_id)


def drive_engine(
    engine: PredictorEngine, arrivals: Iterable[tuple[float, str]], until_s: float
) -> tuple[ModelForecast, ...]:
    """Tell the engine what came, tick it every 10 s, and give its forecasts at the end."""
    tick_s: float | None = None
    for number, (at_s, model) in enumerate(sorted(arrivals)):
        tick_s = at_s - at_s % 10.0 if tick_s is None else tick_s
        while tick_s <= at_s:
            engine.tick(tick_s)
            tick_s += 10.0
        engine.observe(make_received(model, at_s, f"{number}:{model}@{at_s}"))
    while tick_s is not None and tick_s < until_s:
        engine.tick(tick_s)
        tick_s += 10.0
    return engine.tick(until_s)


@pytest.fixture
def received() -> Callable[..., RequestReceived]:
    return make_received


@pytest.fixture
def drive() -> Callable[..., tuple[ModelForecast, ...]]:
    return drive_engine
