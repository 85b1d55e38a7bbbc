"""The slow part of forecasting: what a job runs beside its event loop, for minutes.

It can be broken off between two looks, and leaves nothing behind: whoever called it keeps what it
gives back, or nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from contracts.config import PredictorConfig
from contracts.events import AnyEvent
from contracts.insights import (
    BOOSTED,
    MAX_SCORED_MODELS,
    MIXTURE,
    OWN_LOG,
    BacktestReport,
    BacktestScore,
    ModelScore,
)
from predictor.backtest import BacktestResult, BacktestRow, plan_for_week, walk_forward
from predictor.backtest_history import History
from predictor.batch_challenger import BoostedChallenger
from predictor.promotion import Verdict, decide
from workers.retry import Stopped

_RETRAIN_S = 2 * 86_400.0


@dataclass(slots=True)
class Breaker:
    """Told from another thread that nobody waits for the result any more."""

    is_off: bool = False
    share: float = field(default=0.0)
    """How far it is."""

    def progress(self, share: float) -> None:
        """Called at each look. Raises Stopped when it was broken off."""
        self.share = share
        if self.is_off:
            raise Stopped("the backtest was broken off")


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrained:
    """What a retraining gives. ``challenger`` None: too little has happened to train one."""

    result: BacktestResult
    verdict: Verdict
    challenger: BoostedChallenger | None


def judge(events: Sequence[AnyEvent], config: PredictorConfig, breaker: Breaker) -> BacktestResult:
    """Score the mixture, each expert and the floors over the last week of ``events``."""
    plan = plan_for_week(OWN_LOG, History.of(events), config)
    return walk_forward(plan, events, progress=breaker.progress)


def train_and_judge(
    events: Sequence[AnyEvent], config: PredictorConfig, breaker: Breaker, *, is_promoted: bool
) -> Retrained:
    """Train a challenger as the past week went by, judge it by that, and train it on all there is.

    Parameters
    ----------
    is_promoted : bool
        Whether the challenger before it is published now.
    """
    # Imported here, so that a process which never trains does not hold scikit-learn.
    from predictor.batch_training import GRID, Training

    history = History.of(events)
    training = Training()
    plan = replace(
        plan_for_week(OWN_LOG, history, config), trainer=training.train, retrain_s=_RETRAIN_S
    )
    result = walk_forward(plan, events, progress=breaker.progress)
    verdict = decide(scores_of(result.rows), is_promoted=is_promoted)
    breaker.progress(1.0)
    last = Training(GRID if training.chosen is None else [training.chosen])
    challenger = last.train(history.minutes_until(history.end_s), history.end_s)
    if challenger is not None:
        challenger = replace(challenger, promoted=verdict.promoted)
    return Retrained(result=result, verdict=verdict, challenger=challenger)


def report_of(
    result: BacktestResult, *, made_at_s: float, took_s: float, champion: str, reason: str
) -> BacktestReport:
    """The result as it is stored and shown."""
    mixture, boosted = result.losses.get(MIXTURE, {}), result.losses.get(BOOSTED, {})
    models = sorted(mixture.keys() | boosted.keys())[:MAX_SCORED_MODELS]
    return BacktestReport(
        workload=OWN_LOG,
        made_at_s=made_at_s,
        from_s=result.from_s,
        until_s=result.until_s,
        took_s=took_s,
        models=result.models,
        requests=result.events,
        champion=champion,
        reason=reason,
        scores=scores_of(result.rows),
        by_model=tuple(
            ModelScore(model=name, mixture=mixture.get(name), boosted=boosted.get(name))
            for name in models
        ),
    )


def scores_of(rows: Sequence[BacktestRow]) -> tuple[BacktestScore, ...]:
    """Rows of a backtest as records."""
    return tuple(
        BacktestScore(
            method=row.method,
            horizon_s=row.horizon_s,
            scaled_pinball=None if row.arrivals is None else row.arrivals.scaled_pinball,
            rmsse=None if row.arrivals is None else row.arrivals.rmsse,
            coverage_80=None if row.arrivals is None else row.arrivals.coverage_80,
            brier=None if row.use is None else row.use.brier,
            reliability_max_error=None if row.use is None else row.use.reliability_max_error,
            looks=row.looks,
        )
        for row in rows
    )
