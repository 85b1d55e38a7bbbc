"""``headstart bench saturation``: what is gained over LocalAI's LRU where it cannot keep up.

The rate is raised until LocalAI's LRU serves fewer than half of the requests in the time that
their class may wait: that is the knee, and all are measured there.
"""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from simulator.comparison import Setting, play
from simulator.saturation import SaturationRow, knee_traffic, saturation_row

LOCALAI_LRU = "localai-lru"
KEPT_UP = 0.5
_FIRST_PER_S = 0.25
_STEP = 1.25
_MOST_PER_S = 20.0


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("saturation")(bench_saturation)


def bench_saturation(
    capacity_mb: Annotated[int, typer.Option(min=10_000, help="GPU memory in MB.")] = 24_000,
    models: Annotated[int, typer.Option(min=2, max=500, help="How many there are.")] = 60,
    nodes: Annotated[int, typer.Option(min=1, max=16, help="GPUs, each of this memory.")] = 1,
    policy: Annotated[str, typer.Option(metavar="A[,B]", help="Policies.")] = "lru,headstart",
    per_s: Annotated[
        float | None, typer.Option(min=0.01, help="Requests per second; default: the knee.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=5.0, help="How long requests come.")] = 60.0,
    seed: Annotated[int, typer.Option(min=0, help="What the traffic is drawn from.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
) -> None:
    """Throughput, waits of the highest class and GPU time in use, against LocalAI's LRU."""
    setting = Setting(capacity_mb=capacity_mb, nodes=nodes, turns=True)

    def run(name: str, rate: float) -> SaturationRow:
        sys.stderr.write(f"headstart: {name} at {rate:.3g} requests/s\n")
        traffic = knee_traffic(seed=seed, models=models, span_s=60.0 * minutes, per_s=rate)
        return saturation_row(name, play(name, traffic, setting))

    rate = per_s if per_s is not None else _FIRST_PER_S
    base = run(LOCALAI_LRU, rate)
    while per_s is None and _keeps_up(base, minutes) and rate < _MOST_PER_S:
        rate *= _STEP
        base = run(LOCALAI_LRU, rate)
    rows = [base, *(run(name.strip(), rate) for name in policy.split(",") if name.strip())]
    result = {
        "rows": [{**row.as_dict(), **_gains(row, base)} for row in rows],
        "per_s": rate,
        "models": models,
        "capacity_mb": capacity_mb,
        "nodes": nodes,
        "seed": seed,
    }
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        _print(rows, base, rate)


def _keeps_up(row: SaturationRow, minutes: float) -> bool:
    return row.throughput_per_s * 60.0 * minutes >= KEPT_UP * row.n


def _gains(row: SaturationRow, base: SaturationRow) -> dict[str, Any]:
    """Relative to LocalAI's LRU: +0.5 is half as much again, -0.6 is 60 % less."""

    def relative(value: float, to: float) -> float | None:
        return None if to == 0.0 else value / to - 1.0

    return {
        "throughput_gain": relative(row.throughput_per_s, base.throughput_per_s),
        "realtime_p95_wait_gain": relative(row.realtime_p95_wait_s, base.realtime_p95_wait_s),
        "gpu_in_use_gain": relative(row.gpu_in_use, base.gpu_in_use),
        "gpu_in_use_in_time_gain": relative(row.gpu_in_use_in_time, base.gpu_in_use_in_time),
    }


def _print(rows: list[SaturationRow], base: SaturationRow, rate: float) -> None:
    print(f"{base.n} requests, {rate:.3g} a second")
    print(
        f"{'policy':16}{'served/s':>9}{'':>8}{'p95 s':>9}{'':>8}{'in use':>8}{'':>8}"
        f"{'in time':>9}{'':>8}{'loads':>7}"
    )
    for row in rows:
        gains = ["" if gain is None else f"{gain:+.0%}" for gain in _gains(row, base).values()]
        print(
            f"{row.policy:16}{row.throughput_per_s:9.3f}{gains[0]:>8}"
            f"{row.realtime_p95_wait_s:9.1f}{gains[1]:>8}"
            f"{row.gpu_in_use:8.1%}{gains[2]:>8}"
            f"{row.gpu_in_use_in_time:9.1%}{gains[3]:>8}{row.loads:7}"
        )
