"""Forecasts, and what came, as people see them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.control.base_schemas import Schema
from contracts.forecasts import ForecastStatus


class NextUseView(Schema):
    """How probable a request is within some delays from now."""

    made_at_s: float
    expires_at_s: float
    valid: bool = Field(description="Neither expired nor worse than the naive floor.")
    last_arrival_at_s: float | None
    probabilities: list[ProbabilityView]
    method: str
    status: ForecastStatus
    brier: float | None
    floor_brier: float | None


class ProbabilityView(Schema):
    """P(at least one request within ``within_s`` from now)."""

    within_s: float
    probability: float


class QuantileView(Schema):
    """One quantile."""

    level: float
    value: float


class HorizonView(Schema):
    """What is expected over the next ``horizon_s`` seconds."""

    horizon_s: float
    mean: float
    quantiles: list[QuantileView]
    method: str
    status: ForecastStatus
    loss: float | None = Field(description="Mean pinball loss so far; smaller is better.")
    floor_loss: float | None = Field(description="The same for the naive floor.")
    skill_ratio: float | None = Field(
        description="1 - loss / floor_loss: above zero is better than the floor."
    )
    coverage_ratio: float | None


class SignalView(Schema):
    """A forecast of one signal at all horizons."""

    signal: str
    made_at_s: float
    expires_at_s: float
    expired: bool
    horizons: list[HorizonView]


class ForecastView(Schema):
    """All that is forecast for one model."""

    object: Literal["forecast"] = "forecast"
    id: str
    model: str
    next_use: NextUseView | None
    signals: list[SignalView]
    stale: bool = False


class BucketView(Schema):
    """One minute: what came, and what had been forecast."""

    start_s: float
    end_s: float
    count: int | None
    window_count: int | None = Field(
        description="Requests in the horizon's window that ends with this minute."
    )
    quantiles: list[QuantileView] | None = Field(
        description="The band forecast for that window at its beginning; null: none was."
    )


class HistoryView(Schema):
    """Forecast against what came, for one model and horizon, oldest first."""

    object: Literal["history"] = "history"
    model: str
    horizon_s: float
    now_s: float
    step_s: float = 60.0
    data: list[BucketView]
    stale: bool = False


NextUseView.model_rebuild()
