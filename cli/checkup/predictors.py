"""Judgements on the predictors. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from cli.checkup.findings import Finding, ok, warn
from contracts.predictors import PredictorBeat, Standing, present


def judge_predictors(beats: Iterable[PredictorBeat], now_s: float) -> Iterator[Finding]:
    """Whether one publishes, and whether one would take over."""
    living = present(beats, now_s)
    if not living:
        yield ok("predictor", "predictor", "none runs")
        return
    standbys = sum(one.standing is Standing.STANDBY for one in living)
    learning = sum(one.standing is Standing.CATCHING_UP for one in living)
    others = f"{standbys} stand by" + (f", {learning} still learn" if learning else "")
    if living[0].standing is Standing.OWNER:
        yield ok("predictor", "predictor", f"{living[0].name} publishes, {others}")
    else:
        yield warn(
            "predictor",
            "predictor",
            f"none publishes forecasts ({others})",
            "one that still learns publishes when it is done; else see the predictors' logs",
        )
