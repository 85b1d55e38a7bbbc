"""``headstart bench planner``: what one run of the planner takes, at 100 and 5,000 models.

The worlds are played by the simulator with the product's own predictor, so that curves,
residents and waiting requests are as they come; each call of the planner is timed alone.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from contracts.config import PlannerConfig, PredictorConfig
from contracts.plan import PlanResult
from controller.planner import plan
from predictor.engine import PredictorEngine
from simulator.drawn_traffic import mixed_traffic
from simulator.history import history_events
from simulator.product import ProductDriver
from simulator.report import percentile
from simulator.simulation import Simulation


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One measured world: the predictor is told the first part, ``played_s`` are played.

    Runs of the planner in the first third of that are not counted: memory fills up in it.
    """

    models: int
    capacity_mb: int
    played_s: float
    per_s: float


HISTORY_S = 3600.0
_HISTORY_STEPS = 1000

STAGES = (
    Stage(models=100, capacity_mb=48_000, played_s=900.0, per_s=0.5),
    Stage(models=5000, capacity_mb=80_000, played_s=60.0, per_s=2.0),
)


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("planner")(bench_planner)


def bench_planner(
    seed: Annotated[int, typer.Option(min=0, help="What the traffic is drawn from.")] = 1,
    policy: Annotated[str, typer.Option(help="The policy that is measured.")] = "headstart",
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
) -> None:
    """Time each run of the planner: milliseconds at p50 and p99."""
    found: dict[str, float] = {}
    for stage in STAGES:
        sys.stderr.write(f"headstart: {stage.models} models, {stage.capacity_mb} MB\n")
        took_ms = sorted(1000.0 * took_s for took_s in timed_runs(stage, policy, seed))
        found[f"models_{stage.models}_p50_ms"] = round(percentile(took_ms, 0.50), 4)
        found[f"models_{stage.models}_p99_ms"] = round(percentile(took_ms, 0.99), 4)
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name:24} {value:10.3f}\n")


def timed_runs(stage: Stage, policy: str, seed: int) -> list[float]:
    """Seconds of CPU that each run of the planner took."""
    whole = mixed_traffic(
        stage.models, seed=seed, span_s=HISTORY_S + stage.played_s, per_s=stage.per_s
    )
    before = whole.between(0.0, HISTORY_S)
    workload = replace(whole, arrivals=whole.part(HISTORY_S, None))
    engine = PredictorEngine(PredictorConfig(), signals=False)
    for event in history_events((a.at_s, a.model, a.service_s, "") for a in before):
        engine.pass_time(event.at_s, steps=_HISTORY_STEPS)
        engine.observe(event)
    took_s: list[float] = []

    def timed(**arguments: Any) -> PlanResult:
        # CPU time: what others do on this machine meanwhile is not the planner's.
        began_s = time.process_time()
        result = plan(**arguments)
        ended_s = time.process_time()
        if simulation.now_s >= HISTORY_S + stage.played_s / 3.0:
            took_s.append(ended_s - began_s)
        return result

    config = PlannerConfig(policy=policy)
    driver = ProductDriver(policy, engine, config, planner=timed)
    simulation = Simulation(workload, stage.capacity_mb, driver)
    simulation.run()
    return took_s
