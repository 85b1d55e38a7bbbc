"""``headstart bench scale``: a large deployment in virtual time, and which part breaks first.

The code that decides is the product's own: routes, admission and events of a gateway, fold, homes,
planner and routing table of the controller, the predictor's engine, the board of the control API,
the records as they go over Redis, and a real server that is filled with them. What is measured is
CPU time on this machine for each virtual second; from it follows how busy each process would be.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.scale_redis import measured
from cli.scale_run import Progress, ScaleRun
from simulator.scale_costs import Budgets, shares
from simulator.scale_figures import (
    Played,
    RedisCost,
    breaking_point,
    figures,
    foreseen_point,
)
from simulator.scale_fleet import ScaleSize

WARM_UP_S = 3
STEP_S = 10
"""Virtual seconds of one step of the sweep: one tick of the predictor."""
DOUBLINGS = 4
DIMENSIONS = ("requests_per_s", "models", "nodes", "all")
QUICK = ScaleSize(models=150, nodes=15, requests_per_s=100.0)


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("scale")(bench_scale)


def bench_scale(
    models: Annotated[int, typer.Option(min=1, help="Models.")] = 1000,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes with a LocalAI each.")] = 100,
    requests_per_s: Annotated[float, typer.Option(min=1.0, help="Requests a second.")] = 1000.0,
    gateways: Annotated[int, typer.Option(min=1, help="Gateways.")] = 4,
    listed_on: Annotated[
        int, typer.Option(min=0, help="Nodes that list each model; 0: all of them.")
    ] = 0,
    minutes: Annotated[float, typer.Option(min=0.1, help="Virtual minutes of the run.")] = 2.0,
    doublings: Annotated[
        int, typer.Option(min=0, help="How often a dimension is doubled at most; 0: no sweep.")
    ] = DOUBLINGS,
    quick: Annotated[bool, typer.Option("--quick", help="A small one, within half a minute.")] = (
        False
    ),
    seed: Annotated[int, typer.Option(min=0, help="What the traffic is drawn from.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
) -> None:
    """CPU of each part for a virtual second, and what breaks first at which size."""
    size = ScaleSize(
        models=models,
        nodes=nodes,
        requests_per_s=requests_per_s,
        gateways=gateways,
        listed_on=listed_on,
    )
    seconds = round(60 * minutes)
    if quick:
        size, seconds, doublings = replace(QUICK, listed_on=listed_on), STEP_S, 1
    began_s = time.process_time()
    run, found, redis = played(size, seconds, seed)
    first = (1.0, shares(found, Budgets()))
    result: dict[str, Any] = {
        "size": asdict(size),
        "machine": machine(),
        "virtual_s": seconds,
        "figures": found,
        "cpu_ms_per_virtual_s": {
            name: 1e3 * cost.cpu_s / seconds for name, cost in sorted(run.costs.costs.items())
        },
        "redis": asdict(redis),
        "shares": first[1],
        "loads": run.fleet.loads,
        "waited": run.waited,
        "sweep": [
            swept(size, dimension, doublings, seed, first) for dimension in dimensions(doublings)
        ],
        "seed": seed,
        "cpu_s": time.process_time() - began_s,
    }
    result = rounded(result)
    for line in lines(result):
        typer.echo(line)
    if as_json:
        typer.echo(json.dumps(result))


def dimensions(doublings: int) -> tuple[str, ...]:
    """What is doubled, one after the other."""
    return DIMENSIONS if doublings else ()


def played(
    size: ScaleSize, seconds: int, seed: int
) -> tuple[ScaleRun, dict[str, float], RedisCost]:
    """One run, its figures, and what a real server takes for what it wrote."""
    run = ScaleRun(size, seed=seed, warm_up=WARM_UP_S)
    run.play(seconds, progress(size))
    redis = asyncio.run(measured(run.sample, gateways=size.gateways))
    told = Played(
        seconds=seconds,
        requests=run.requests,
        events=run.events,
        tables=run.tables,
        models=size.models,
        gateways=size.gateways,
    )
    return run, figures(run.costs, told, redis), redis


Step = tuple[float, dict[str, float]]
"""By how much a size was multiplied, and the share of its budget that each part took."""


def swept(
    size: ScaleSize, dimension: str, doublings: int, seed: int, first: Step
) -> dict[str, Any]:
    """Double one dimension until a part is over its budget, at most so often."""
    steps = [first]
    for factor, larger in sizes(size, dimension, doublings):
        if max(steps[-1][1].values()) >= 1.0:
            break
        _, found, _ = played(larger, STEP_S, seed)
        steps.append((factor, shares(found, Budgets())))
    last_factor, last = steps[-1]
    breaks = {part: at for part in last if (at := breaking_point(steps, part)) is not None}
    foreseen = {
        part: at
        for part in last
        if part not in breaks and (at := foreseen_point(steps, part)) is not None
    }
    return {
        "dimension": dimension,
        "steps": [{"factor": factor, "shares": found} for factor, found in steps],
        "first": min(breaks, key=breaks.__getitem__) if breaks else None,
        "breaks_at_factor": breaks,
        "foreseen_at_factor": foreseen,
        "largest_factor": last_factor,
        "busiest": max(last, key=last.__getitem__),
    }


def sizes(size: ScaleSize, dimension: str, doublings: int) -> Iterator[tuple[float, ScaleSize]]:
    """So many doublings."""
    for number in range(1, doublings + 1):
        factor = 2**number
        changes: dict[str, Any] = {}
        if dimension in ("requests_per_s", "all"):
            changes["requests_per_s"] = size.requests_per_s * factor
            changes["gateways"] = size.gateways * factor
        if dimension in ("models", "all"):
            changes["models"] = size.models * factor
        if dimension in ("nodes", "all"):
            changes["nodes"] = size.nodes * factor
        yield float(factor), replace(size, **changes)


def progress(size: ScaleSize) -> Progress:
    """Says on stderr how far a run is, ten times."""
    sys.stderr.write(
        f"headstart: {size.models} models, {size.nodes} nodes, "
        f"{size.requests_per_s:.0f} requests/s\n"
    )

    def say(done: int, whole: int) -> None:
        if done % max(1, whole // 10) == 0:
            sys.stderr.write(f"headstart: {done} of {whole} virtual seconds\n")

    return say


def machine() -> str:
    """What this was measured on."""
    names = [
        line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")
    ]
    cpu = names[0] if names else platform.machine()
    return f"{cpu}, {os.cpu_count()} CPUs, Python {platform.python_version()}"


def _cpu_lines() -> list[str]:
    told = Path("/proc/cpuinfo")
    return told.read_text().splitlines() if told.exists() else []


def rounded(value: Any) -> Any:
    """Four figures of each number: the rest is noise."""
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, dict):
        return {key: rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [rounded(one) for one in value]
    return value


def lines(result: dict[str, Any]) -> Iterator[str]:
    """For people."""
    yield f"{result['virtual_s']} virtual seconds on {result['machine']}"
    for name, value in result["figures"].items():
        yield f"  {name:26} {value:>14,.6g}"
    yield "share of its budget"
    for name, value in sorted(result["shares"].items(), key=lambda item: -item[1]):
        yield f"  {name:26} {value:>14.3f}"
    for one in result["sweep"]:
        if one["first"] is None:
            yield (
                f"{one['dimension']} x {one['largest_factor']:g}: holds; busiest {one['busiest']}"
            )
        for part, at in sorted(one["breaks_at_factor"].items(), key=lambda item: item[1]):
            yield f"{one['dimension']} x {at:.3g}: {part} breaks"
        for part, at in sorted(one["foreseen_at_factor"].items(), key=lambda item: item[1]):
            yield f"{one['dimension']} x {at:.3g}: {part} would break, as it grew"
    yield f"seed {result['seed']}, {result['cpu_s']:.0f} CPU seconds"
