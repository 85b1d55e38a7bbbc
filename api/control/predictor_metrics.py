"""Predictors for Prometheus: whose forecasts are published, and who stands by."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from contracts.predictors import PredictorBeat, Standing


def predictor_metrics(predictors: tuple[PredictorBeat, ...]) -> Iterator[Metric]:
    """Of the living ones, the owner first; there are ``MAX_PREDICTORS`` at most."""
    owner = GaugeMetricFamily(
        "headstart_predictor_is_owner",
        "1 for the predictor whose forecasts are published, 0 for one that does not publish.",
        labels=["predictor"],
    )
    refused = GaugeMetricFamily(
        "headstart_predictor_refused_writes",
        "Writes of a predictor that another had taken over from, since it started.",
        labels=["predictor"],
    )
    for place, one in enumerate(predictors):
        is_owner = place == 0 and one.standing is Standing.OWNER
        owner.add_metric([one.name], float(is_owner))
        refused.add_metric([one.name], float(one.refused))
    standings = GaugeMetricFamily(
        "headstart_predictors", "Predictors by what they do.", labels=["standing"]
    )
    for standing in Standing:
        count = sum(one.standing is standing for one in predictors)
        standings.add_metric([standing.value], float(count))
    yield from (owner, refused, standings)
