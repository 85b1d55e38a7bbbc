"""Backtests and chores as routes show them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from api.control.insight_schemas import (
    BacktestScoreView,
    BacktestView,
    ChoreView,
    ModelBacktestView,
)
from contracts.ids import ModelId
from contracts.insights import BacktestReport, NextRun


def backtest_view(report: BacktestReport) -> BacktestView:
    """One report with all its rows."""
    return BacktestView(
        id=report.workload,
        workload=report.workload,
        made_at_s=report.made_at_s,
        from_s=report.from_s,
        until_s=report.until_s,
        took_s=report.took_s,
        models=report.models,
        requests=report.requests,
        champion=report.champion,
        reason=report.reason,
        rows=[BacktestScoreView(**asdict(score)) for score in report.scores],
    )


def model_backtest_view(
    reports: Sequence[BacktestReport], model: ModelId, *, workload: str
) -> ModelBacktestView | None:
    """What the newest report on ``workload`` says of one model; None: there is none."""
    report = next((one for one in reports if one.workload == workload), None)
    if report is None:
        return None
    score = next((one for one in report.by_model if one.model == model), None)
    return ModelBacktestView(
        made_at_s=report.made_at_s,
        champion=report.champion,
        reason=report.reason,
        mixture=None if score is None else score.mixture,
        boosted=None if score is None else score.boosted,
    )


def chore_view(run: NextRun, last_state: str | None) -> ChoreView:
    """One chore; ``last_state`` of the job of its last time."""
    return ChoreView(
        id=run.kind,
        cron=run.cron,
        time_zone=run.time_zone,
        next_at_s=run.next_at_s,
        last_at_s=run.last_at_s,
        last_job_id=run.last_job_id,
        last_state=last_state,
    )
