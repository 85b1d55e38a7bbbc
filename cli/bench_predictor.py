"""``headstart bench predictor``: what the predictor takes of a core and of memory.

Events are drawn once and told to a fresh engine in the order in which a busy deployment would
write them: four of each request, beside ticks. Memory is that of a process of its own, so that
what else this command has in memory does not count.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Annotated

import typer

from contracts.config import PredictorConfig
from contracts.events import (
    AnyEvent,
    FirstTokenSent,
    PriorityClass,
    RequestCompleted,
    RequestDispatched,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId, RequestId
from predictor.engine import PredictorEngine

START_S = 1_700_000_000.0
EVENTS = 200_000
SPEED_MODELS = 50
FORECAST_MODELS = 500
MEMORY_MODELS = 5_000
TICKS = 30
_MIB = 1024 * 1024


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("predictor")(bench_predictor)


def bench_predictor(
    seed: Annotated[int, typer.Option(min=0, help="What the traffic is drawn from.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
    memory_only: Annotated[
        bool, typer.Option("--memory-only", hidden=True, help="Say how large this process is.")
    ] = False,
) -> None:
    """Events a second on one core, seconds for 500 models' forecasts, memory for 5,000."""
    if memory_only:
        sys.stdout.write(f"{resident_mb(MEMORY_MODELS, seed):.1f}\n")
        return
    found = {
        "events_per_s": round(events_per_s(EVENTS, SPEED_MODELS, seed), 0),
        "forecast_500_models_s": round(forecast_s(FORECAST_MODELS, seed), 4),
        "rss_mb_5000_models": round(_measured_apart(seed), 1),
    }
    if as_json:
        sys.stdout.write(json.dumps(found) + "\n")
        return
    for name, value in found.items():
        sys.stdout.write(f"{name:24} {value:12.3f}\n")


def drawn_events(requests: int, models: int, seed: int, per_s: float) -> Iterator[AnyEvent]:
    """Four events of each request, in order of time."""
    draw = random.Random(seed)
    for number in range(requests):
        at_s = START_S + number / per_s
        model = ModelId(f"model-{draw.randrange(models)}")
        yield from request_events(number, model, at_s)


def request_events(number: int, model: ModelId, at_s: float) -> tuple[AnyEvent, ...]:
    """What a gateway tells of one streamed request."""
    request = RequestId(f"r{number}")
    return (
        RequestReceived(
            event_id=f"{number}r",
            at_s=at_s,
            source="bench",
            request_id=request,
            model=model,
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="c",
            stream=True,
        ),
        RequestDispatched(
            event_id=f"{number}d",
            at_s=at_s,
            source="bench",
            request_id=request,
            model=model,
            node=NodeId("n"),
            queue_wait_s=0.0,
            cold=False,
        ),
        FirstTokenSent(
            event_id=f"{number}f", at_s=at_s, source="bench", request_id=request, model=model,
            ttft_s=0.2,
        ),
        RequestCompleted(
            event_id=f"{number}c",
            at_s=at_s,
            source="bench",
            request_id=request,
            model=model,
            status=200,
            duration_s=2.0,
            service_s=1.8,
            input_tokens=300,
            output_tokens=90,
        ),
    )  # fmt: skip


def events_per_s(events: int, models: int, seed: int) -> float:
    """How many events one core takes in a second, ticks included."""
    told = list(drawn_events(events // 4, models, seed, per_s=50.0))
    engine = PredictorEngine(PredictorConfig())
    next_tick_s = START_S
    began_s = time.process_time()
    for event in told:
        if event.at_s >= next_tick_s:
            engine.tick(next_tick_s)
            next_tick_s += 10.0
        engine.observe(event)
    return len(told) / (time.process_time() - began_s)


def forecast_s(models: int, seed: int) -> float:
    """CPU seconds of one 10 s tick with everything learned, scored and forecast: the mean."""
    engine = PredictorEngine(PredictorConfig())
    for event in drawn_events(4 * models, models, seed, per_s=20.0):
        engine.observe(event)
    now_s = START_S + 4 * models / 20.0
    number, took_s = 4 * models, 0.0
    draw = random.Random(seed)
    for tick in range(2 * TICKS):
        for _ in range(20):
            number += 1
            model = ModelId(f"model-{draw.randrange(models)}")
            for event in request_events(number, model, now_s + 5.0):
                engine.observe(event)
        now_s += 10.0
        began_s = time.process_time()
        engine.tick(now_s)
        took_s += (time.process_time() - began_s) * (tick >= TICKS)
    return took_s / TICKS


def resident_mb(models: int, seed: int) -> float:
    """Resident memory of this process once it knows ``models`` and forecasts them all."""
    import psutil

    engine = PredictorEngine(PredictorConfig(max_models=models))
    for number in range(models):
        for event in request_events(number, ModelId(f"model-{number}"), START_S + 0.01 * number):
            engine.observe(event)
    for event in drawn_events(models, models, seed, per_s=20.0):
        engine.observe(event)
    now_s = START_S + models / 20.0
    for _ in range(8):
        now_s += 60.0
        engine.tick(now_s)
    return float(psutil.Process().memory_info().rss) / _MIB


def _measured_apart(seed: int) -> float:
    ran = subprocess.run(  # noqa: S603 - this very program
        [sys.executable, "-m", "cli", "bench", "predictor", "--memory-only", "--seed", str(seed)],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(ran.stdout.strip().splitlines()[-1])
