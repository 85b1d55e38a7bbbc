"""What a run is judged by: one row per policy, the same figures for simulation and replay."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy on one workload. Ratios are shares of ``n``; waits are seconds.

    ``cold``: the model was not hot when the request arrived; ``slo``: the wait was at most
    the model's ``slo_s``.
    """

    policy: str
    n: int
    cold: float
    slo: float
    mean_wait_s: float
    p50_wait_s: float
    p95_wait_s: float
    p99_wait_s: float
    loads: int
    prefetches: int
    wasted_prefetches: int

    def as_dict(self) -> dict[str, float | int | str]:
        """The row as JSON takes it."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRow:
    """A row of the simulation: what ``Row`` has, and what only the simulation can say.

    ``closure`` is None where ``lru`` and ``oracle`` do not differ; ``gb_hours`` is memory held
    by models, from the start of their loads, in decimal GB of the workload's MB.
    """

    workload: str
    capacity_mb: int
    policy: str
    n: int
    cold: float
    slo: float
    closure: float | None
    mean_wait_s: float
    p50_wait_s: float
    p95_wait_s: float
    p99_wait_s: float
    loads: int
    prefetches: int
    wasted_prefetches: int
    unloads: int
    gb_hours: float

    def as_dict(self) -> dict[str, float | int | str | None]:
        """The row as JSON takes it."""
        return asdict(self)


def closure(slo: float, *, lru: float, oracle: float) -> float | None:
    """How much of the way from a memory-aware LRU (0) to clairvoyance (1) a policy goes.

    None where the two do not differ: there is no way to go.
    """
    return None if oracle == lru else (slo - lru) / (oracle - lru)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value at index floor(share x n) of sorted values; NaN for none."""
    if not ordered:
        return math.nan
    return ordered[min(len(ordered) - 1, math.floor(share * len(ordered)))]


def row(
    policy: str,
    waits: Sequence[tuple[float, float, bool]],
    *,
    loads: int,
    prefetches: int,
    wasted_prefetches: int,
) -> Row:
    """Sum up (wait, the slo that it is held against, cold) of each request."""
    n = len(waits)
    ordered = sorted(wait for wait, _, _ in waits)
    return Row(
        policy=policy,
        n=n,
        cold=sum(cold for _, _, cold in waits) / n if n else math.nan,
        slo=sum(wait <= slo for wait, slo, _ in waits) / n if n else math.nan,
        mean_wait_s=math.fsum(ordered) / n if n else math.nan,
        p50_wait_s=percentile(ordered, 0.50),
        p95_wait_s=percentile(ordered, 0.95),
        p99_wait_s=percentile(ordered, 0.99),
        loads=loads,
        prefetches=prefetches,
        wasted_prefetches=wasted_prefetches,
    )
