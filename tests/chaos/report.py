"""A run in figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from tests.chaos.run import Outcome

MAX_LISTED = 200


def figures(outcome: Outcome) -> dict[str, Any]:
    """One object for programs."""
    return {
        "seed": outcome.schedule.seed,
        "paced": outcome.schedule.paced,
        "wall_s": round(outcome.wall_s, 1),
        "faults": sum(outcome.faults.values()),
        "faults_by_kind": dict(sorted(outcome.faults.items())),
        "missed_by_kind": dict(sorted(outcome.missed.items())),
        "requests": sum(outcome.requests.values()),
        "requests_by_outcome": dict(sorted(outcome.requests.items())),
        "background_jobs": dict(sorted(outcome.jobs.items())),
        "batches": dict(sorted(outcome.batches.items())),
        "batch_lines": outcome.lines,
        "events": outcome.events,
        "deaths": outcome.deaths,
        "loads_refused_for_memory": outcome.refused_for_memory,
        "disk": outcome.disk,
        "settled_s": {name: _round(took_s) for name, took_s in outcome.settled.items()},
        "recovery_s": {
            label: spread(each)
            | {group: spread(took) for group, took in outcome.groups.get(label, {}).items()}
            | {"last": dict(outcome.slowest[label])}
            for label, each in sorted(outcome.recovery.items())
        },
        "violations": len(outcome.violations),
        "violations_listed": [asdict(each) for each in outcome.violations[:MAX_LISTED]],
    }


def spread(took_s: Sequence[float | None]) -> dict[str, Any]:
    """Count, median, 95th percentile and maximum; those that never came are infinite."""
    ordered = sorted(math.inf if each is None else each for each in took_s)

    def at(share: float) -> float | None:
        if not ordered:
            return None
        found = ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]
        return None if math.isinf(found) else _round(found)

    return {"n": len(ordered), "p50": at(0.5), "p95": at(0.95), "max": at(1.0)}


def table(outcome: Outcome) -> str:
    """For people."""
    found = figures(outcome)
    lines = [
        f"seed {found['seed']}, {found['wall_s']} s, {found['faults']} faults, "
        f"{found['requests']} requests, {found['batch_lines']} batch lines, "
        f"{sum(outcome.jobs.values())} jobs, {found['violations']} violations"
    ]
    for label, count in found["faults_by_kind"].items():
        took = found["recovery_s"].get(label)
        shown = ""
        if took:
            shown = f"  p50 {took['p50']} p95 {took['p95']} max {took['max']} s"
            groups = outcome.groups.get(label, {})
            shown += "".join(f", {group} p50 {took[group]['p50']}" for group in groups)
        lines.append(f"  {label:<26} {count:>5}{shown}")
    lines += [f"  {label:<26} {count:>5}" for label, count in found["requests_by_outcome"].items()]
    for each in outcome.violations[:MAX_LISTED]:
        lines.append(f"VIOLATION {each.check}: {each.about}: {each.what}")
    return "\n".join(lines)


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
