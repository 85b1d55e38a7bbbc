"""Series that a Kubernetes autoscaler may scale by: fresh, bounded, and only what is known."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client.metrics_core import Metric

from api.control.scaling_metrics import (
    MAX_TARGETS,
    STALE_S,
    fresh,
    is_stale,
    scaling_metrics,
    worker_scalings,
)
from contracts.reasons import Reason
from contracts.scaling import Scaling

NOW_S = 1_000.0
CHAT = Scaling(
    target="chat", at_s=NOW_S, replicas=3, reason=Reason.FORECAST_NEED, needed=3, most=6, current=2
)


def values(metrics: list[Metric]) -> dict[tuple[str, str], float]:
    return {
        (metric.name.removeprefix("headstart_autoscale_"), sample.labels["target"]): sample.value
        for metric in metrics
        for sample in metric.samples
    }


def test_a_target_has_its_four_numbers():
    assert values(list(scaling_metrics((CHAT,)))) == {
        ("desired_replicas", "chat"): 3.0,
        ("current_replicas", "chat"): 2.0,
        ("needed_replicas", "chat"): 3.0,
        ("max_replicas", "chat"): 6.0,
    }


def test_what_nobody_tells_has_no_series():
    read = replace(CHAT, current=None, needed=None, most=None)
    assert values(list(scaling_metrics((read,)))) == {("desired_replicas", "chat"): 3.0}


def test_an_old_number_is_given_to_nobody():
    old = replace(CHAT, target="old", at_s=NOW_S - STALE_S - 1.0)
    assert is_stale(old, NOW_S)
    assert fresh({"old": old, "chat": CHAT}, NOW_S) == (CHAT,)


def test_targets_are_bounded():
    many = {f"t{number:04}": replace(CHAT, target=f"t{number:04}") for number in range(150)}
    kept = fresh(many, NOW_S)
    assert [one.target for one in kept] == sorted(many)[:MAX_TARGETS]


def test_workers_are_wanted_by_their_jobs_within_bounds():
    idle, busy = worker_scalings(
        {"batch": {"queued": 5, "started": 2}, "background": {}},
        {"batch": 1},
        max_workers=4,
        now_s=NOW_S,
    )
    assert (idle.target, idle.replicas, idle.current) == ("workers-background", 1, None)
    assert (busy.replicas, busy.needed, busy.most, busy.current) == (4, 7, 4, 1)
    assert busy.evidence == {"waiting": 5, "running": 2}
