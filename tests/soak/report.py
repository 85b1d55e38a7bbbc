"""From samples and answers to the object that a run says, and whether it is a pass. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tests.soak.bounds import POOL, Facts, rule_of
from tests.soak.quantiles import Shift, shift
from tests.soak.trends import Judged, judge

WARM_UP = 0.25
"""Share of a run after which slopes are judged: one wave of four."""

P99_RATIO = 0.2
P99_FLOOR_S = 0.001

Samples = Sequence[tuple[float, Mapping[str, float]]]


def judged(samples: Samples, hours: float, facts: Facts) -> dict[str, Judged]:
    """Each series by its name, from the samples ``(hour, figures)`` after the warm-up."""
    series: dict[str, list[tuple[float, float]]] = {}
    for hour, figures in samples:
        if hour >= WARM_UP * hours:
            for name, value in figures.items():
                series.setdefault(name, []).append((hour * 3600.0, value))
    return {
        name: judge([t for t, _ in points], [v for _, v in points], rule_of(name, facts))
        for name, points in sorted(series.items())
    }


def left_open(calm: Mapping[str, float], drained: Mapping[str, float]) -> dict[str, int]:
    """File descriptors that a process has more when all callers have gone than before they came.

    By series, where they are more than pools of connections may keep.
    """
    return {
        f"file descriptors left open ({name})": int(value - calm[name])
        for name, value in sorted(drained.items())
        # The server's own are the pools of all others together: it has a bound instead.
        if name.endswith(".fds") and not name.startswith("redis.")
        if name in calm and value > calm[name] + POOL
    }


def latency_shift(probes: Sequence[tuple[float, float]], hours: float, seed: int) -> Shift:
    """The p99 of the last quarter against that of the first: the same hours of the wave."""
    return shift(
        [value for hour, value in probes if hour < hours / 4],
        [value for hour, value in probes if hour >= hours * 3 / 4],
        seed=seed,
        ratio=P99_RATIO,
        floor=P99_FLOOR_S,
    )


def by_hour(probes: Iterable[tuple[float, float]]) -> list[dict[str, float | None]]:
    """p50 and p99 in milliseconds for each hour that has any."""
    hours: dict[int, list[float]] = {}
    for hour, value in probes:
        hours.setdefault(int(hour), []).append(value)
    return [
        {
            "hour": hour,
            "n": len(values),
            "p50_ms": _ms(sorted(values)[len(values) // 2]),
            "p99_ms": _ms(sorted(values)[max(0, math.ceil(0.99 * len(values)) - 1)]),
        }
        for hour, values in sorted(hours.items())
    ]


def shown(series: Mapping[str, Judged]) -> dict[str, dict[str, Any]]:
    """The series as JSON has them."""
    return {
        name: {
            "level": _number(one.level),
            "last": _number(one.last),
            "slope_per_day": _number(one.trend.slope),
            "ci": [_number(one.trend.low), _number(one.trend.high)],
            "limit_per_day": _number(one.limit_per_day),
            "verdict": one.verdict.value,
            "bound": one.bound,
            "why": one.why,
            "samples": one.samples,
        }
        for name, one in series.items()
    }


def shown_shift(found: Shift) -> dict[str, Any]:
    """A comparison of quantiles as JSON has it, in milliseconds."""
    return {
        "first_ms": _ms(found.first),
        "last_ms": _ms(found.last),
        "ci_of_difference_ms": [_ms(found.low), _ms(found.high)],
        "verdict": found.verdict.value,
    }


def bad(series: Mapping[str, Judged], latency: Shift, faults: Mapping[str, int]) -> list[str]:
    """Why the run is no pass; nothing: it is one."""
    found = [f"{name} {one.verdict.value}" for name, one in series.items() if one.verdict.is_bad]
    if latency.verdict.is_bad:
        found.append(f"p99 of added latency {latency.verdict.value}")
    return found + [f"{count} {name}" for name, count in faults.items() if count]


def _ms(seconds: float) -> float | None:
    return _number(seconds * 1000.0)


def _number(value: float) -> float | None:
    return round(value, 3) if math.isfinite(value) else None
