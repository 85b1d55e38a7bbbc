"""Autoscaling targets for Prometheus: how many replicas there shall be, and how many there are.

An autoscaler that reads external metrics (Kubernetes' HPA through an adapter) scales by
``headstart_autoscale_desired_replicas``. What is old has no series, so that such a one keeps what
there is. Labels are bounded: the first ``MAX_TARGETS`` by name have series.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.metrics_core import GaugeMetricFamily, Metric

from contracts.jobs import JobState
from contracts.reasons import Reason
from contracts.scaling import Scaling

WORKERS = "workers-"
"""Targets of this prefix are the worker processes of a queue."""

MAX_TARGETS = 100

STALE_S = 60.0
"""A number that is older than this is given to nobody: the controller looks every 10 s."""


def is_stale(scaling: Scaling, now_s: float) -> bool:
    """Whether nobody should scale by it any more."""
    return now_s - scaling.at_s > STALE_S


def fresh(scalings: Mapping[str, Scaling], now_s: float) -> tuple[Scaling, ...]:
    """Those that may be scaled by, by name."""
    found = (one for _, one in sorted(scalings.items()) if not is_stale(one, now_s))
    return tuple(found)[:MAX_TARGETS]


def scaling_metrics(scalings: tuple[Scaling, ...]) -> Iterator[Metric]:
    """One series of each for every target of which it is known."""
    for name, text, values in (
        ("desired", "Replicas that there shall be.", [one.replicas for one in scalings]),
        ("current", "Replicas that serve.", [one.current for one in scalings]),
        ("needed", "Replicas needed, whatever the bounds.", [one.needed for one in scalings]),
        ("max", "Most replicas that bounds and budget allow.", [one.most for one in scalings]),
    ):
        family = GaugeMetricFamily(f"headstart_autoscale_{name}_replicas", text, labels=["target"])
        for one, value in zip(scalings, values, strict=True):
            if value is not None:
                family.add_metric([one.target], float(value))
        yield family


def worker_scalings(
    jobs: Mapping[str, Mapping[str, int]],
    workers: Mapping[str, int],
    *,
    max_workers: int,
    now_s: float,
) -> tuple[Scaling, ...]:
    """The worker processes of each queue: one for each job, within bounds."""
    found = []
    for queue, states in sorted(jobs.items()):
        waiting = states.get(JobState.QUEUED, 0)
        running = states.get(JobState.STARTED, 0)
        needed = max(1, waiting + running)
        found.append(
            Scaling(
                target=WORKERS + queue,
                at_s=now_s,
                replicas=min(needed, max_workers),
                reason=Reason.LIVE_NEED,
                evidence={"waiting": waiting, "running": running},
                needed=needed,
                most=max_workers,
                current=workers.get(queue),
            )
        )
    return tuple(found)
