"""From what the load saw to figures and ratios. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DIRECT, NGINX, LITELLM, GATEWAY = "direct", "nginx", "litellm", "headstart"

LATE_S = 0.25
"""A piece of a slow stream that comes later than this after it was written is late."""


@dataclass(slots=True)
class Seen:
    """All that was seen of one stack, over all rounds.

    Attributes
    ----------
    rates : list
        Requests per second at 32 callers, one figure a round.
    cpu_s, busy : list
        What the proxy's process spent in each of these rounds per request, and of its core.
    late : int
        Slow streams of which a piece was late, or that never ended.
    """

    c1_s: list[float] = field(default_factory=list)
    rates: list[float] = field(default_factory=list)
    cpu_s: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    chunk_delays_s: list[float] = field(default_factory=list)
    upload_rates: list[float] = field(default_factory=list)
    late: int | None = None
    slow_delay_max_s: float | None = None
    rss_mb: float | None = None
    skipped: str | None = None


def figures(seen: Seen, direct: Seen) -> dict[str, float | int | None]:
    """One stack's absolute figures; what is added counts from the direct connection."""
    c1_p50, c1_p99 = quantile(seen.c1_s, 0.5), quantile(seen.c1_s, 0.99)
    sse_p50, sse_p99 = quantile(seen.chunk_delays_s, 0.5), quantile(seen.chunk_delays_s, 0.99)
    return {
        "c1_p50_us": _us(c1_p50),
        "c1_p99_us": _us(c1_p99),
        "c1_added_p50_us": _us(_minus(c1_p50, quantile(direct.c1_s, 0.5))),
        "c1_added_p99_us": _us(_minus(c1_p99, quantile(direct.c1_s, 0.99))),
        "c32_rps": _rounded(quantile(seen.rates, 0.5)),
        "c32_cpu_us": _us(quantile(seen.cpu_s, 0.5)),
        "c32_busy": _rounded(quantile(seen.busy, 0.5), 2),
        "sse_delay_p50_us": _us(sse_p50),
        "sse_delay_p99_us": _us(sse_p99),
        "sse_added_p50_us": _us(_minus(sse_p50, quantile(direct.chunk_delays_s, 0.5))),
        "sse_added_p99_us": _us(_minus(sse_p99, quantile(direct.chunk_delays_s, 0.99))),
        "upload_rps": _rounded(quantile(seen.upload_rates, 0.5), 1),
        "slow_late": seen.late,
        "slow_delay_max_ms": None
        if seen.slow_delay_max_s is None
        else _rounded(seen.slow_delay_max_s * 1000.0, 1),
        "rss_mb": _rounded(seen.rss_mb, 1),
    }


RATIOS: Mapping[str, str] = {
    "c1_p50": "c1_added_p50_us",
    "c1_p99": "c1_added_p99_us",
    "c32_rps": "c32_rps",
    "sse_delay_p50": "sse_added_p50_us",
    "sse_delay_p99": "sse_added_p99_us",
    "upload_rps": "upload_rps",
}
"""Ours over nginx's, by the figure that each compares: times are those added to the direct
connection, so that what the load itself costs on this machine does not hide the difference."""


def ratios(
    ours: Mapping[str, float | int | None], nginx: Mapping[str, float | int | None] | None
) -> dict[str, float | None]:
    """Ours over nginx's; None where either is missing, or nothing was added at all."""
    return {name: _ratio(ours[key], (nginx or {}).get(key)) for name, key in RATIOS.items()}


def quantile(values: Sequence[float], share: float) -> float | None:
    """The value that ``share`` of them do not exceed; None without any."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _ratio(ours: float | None, theirs: float | None) -> float | None:
    if ours is None or theirs is None or theirs <= 0:
        return None
    return round(ours / theirs, 3)


def _minus(value: float | None, base: float | None) -> float | None:
    return None if value is None or base is None else value - base


def _us(value_s: float | None) -> float | None:
    return _rounded(None if value_s is None else value_s * 1e6, 1)


def _rounded(value: float | None, digits: int = 0) -> float | None:
    return None if value is None else round(value, digits)
