"""What the routes of backtests and maintenance answer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from api.control.schemas import ForecastView, JobQueueView, Page, Schema


class BacktestScoreView(Schema):
    """One method at one horizon; null where it says nothing of the kind."""

    method: str
    horizon_s: float
    scaled_pinball: float | None = Field(description="The seasonal naive forecast is 1.")
    rmsse: float | None = Field(description="The last value is 1.")
    coverage_80: float | None
    brier: float | None
    reliability_max_error: float | None
    looks: int


class BacktestView(Schema):
    """The newest backtest of one workload; Headstart's own log is called ``events``."""

    object: Literal["backtest"] = "backtest"
    id: str
    workload: str
    made_at_s: float
    from_s: float
    until_s: float
    took_s: float
    models: int
    requests: int
    champion: str = Field(description="Whose numbers are published: mixture or boosted.")
    reason: str
    rows: list[BacktestScoreView]


class ModelBacktestView(Schema):
    """What the newest backtest says of one model: loss within five minutes, seasonal naive = 1."""

    made_at_s: float
    champion: str
    reason: str
    mixture: float | None
    boosted: float | None


class ScoredForecastView(ForecastView):
    """A forecast, and how good such forecasts were over the last week."""

    backtest: ModelBacktestView | None = None


class ChoreView(Schema):
    """A chore of maintenance: when it is due, and what became of the last time."""

    object: Literal["chore"] = "chore"
    id: str
    cron: str
    time_zone: str
    next_at_s: float | None
    last_at_s: float | None
    last_job_id: str | None
    last_state: str | None = Field(description="Null: it was not queued, or is past its retention.")


class JobQueuePage(Page[JobQueueView]):
    """Queues, and the schedule of maintenance."""

    maintenance: list[ChoreView] = Field(default_factory=list)


class ChoreStarted(Schema):
    """A chore that was queued by hand."""

    object: Literal["job"] = "job"
    id: str
    queued: bool = Field(description="False: it is queued already.")
