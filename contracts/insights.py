"""What maintenance has found out: backtests, whose forecasts are published, and when it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from contracts.ids import ModelId

MIXTURE = "mixture"
BOOSTED = "boosted"

OWN_LOG = "events"
"""The workload that is Headstart's own event log."""

MAX_TABLES = 20
"""Newest backtests that are kept, one for each workload."""
MAX_SCORED_MODELS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestScore:
    """One method at one horizon; None where it says nothing of the kind.

    Attributes
    ----------
    scaled_pinball : float or None
        Loss of the quantiles of arrivals; the seasonal naive forecast is 1.
    rmsse : float or None
        Error of the mean; the last value is 1.
    coverage_80 : float or None
        Share of outcomes between the 0.1 and the 0.9 quantile, both included.
    brier, reliability_max_error : float or None
        Of "a request within the horizon".
    """

    method: str
    horizon_s: float
    scaled_pinball: float | None
    rmsse: float | None
    coverage_80: float | None
    brier: float | None
    reliability_max_error: float | None
    looks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelScore:
    """One model within five minutes, for mixture and challenger; the seasonal naive is 1."""

    model: ModelId
    mixture: float | None
    boosted: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestReport:
    """The newest backtest of one workload; the own log is called ``events``.

    Attributes
    ----------
    from_s, until_s : float
        What was scored, in epoch seconds.
    took_s : float
        How long it ran, in real seconds.
    champion : str
        Whose numbers are published after it: ``mixture`` or ``boosted``.
    reason : str
        Why, in one line.
    """

    workload: str
    made_at_s: float
    from_s: float
    until_s: float
    took_s: float
    models: int
    requests: int
    champion: str
    reason: str
    scores: tuple[BacktestScore, ...]
    by_model: tuple[ModelScore, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NextRun:
    """A chore of maintenance and when it is due; None: never again by its cron line."""

    kind: str
    cron: str
    time_zone: str
    next_at_s: float | None
    last_at_s: float | None
    last_job_id: str | None


class InsightStore(Protocol):
    """The newest backtests, for those who show them."""

    async def put_backtest(self, report: BacktestReport) -> None:
        """Keep it in place of the one before; beyond ``MAX_TABLES`` the oldest goes."""
        ...

    async def backtests(self) -> tuple[BacktestReport, ...]:
        """The newest first."""
        ...


class ChampionStore(Protocol):
    """The signed snapshot of the challenger; bytes that only its reader may believe."""

    async def get(self) -> bytes | None:
        """As it was put last, whole or not at all."""
        ...

    async def put(self, snapshot: bytes) -> None:
        """In one step: a reader sees the old or the new one, whatever dies meanwhile."""
        ...

    async def key(self) -> bytes:
        """What snapshots are signed with; made at first use, and never sent anywhere."""
        ...
