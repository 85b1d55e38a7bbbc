"""What ``headstart backtest`` was asked for, and the runs that answer it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import Progress

from contracts.config import PredictorConfig
from contracts.errors import Invalid
from contracts.events import AnyEvent, PriorityClass, RequestReceived
from contracts.forecasts import HORIZONS_S
from contracts.ids import ModelId, RequestId
from contracts.seen_events import SeenEvents
from predictor.backtest import BacktestRow, plan_for, walk_forward
from predictor.backtest_history import History, demand_of, sampled
from simulator.workloads import Workload, guess_workload, load_workload

if TYPE_CHECKING:
    from adapters.settings import Settings

SEED = 0
"""Nothing is drawn at random: this is said so that a row can be told to be repeatable."""
MAX_MODELS = 200
"""More models than this are sampled: those whose names have the smallest CRC-32."""
EVENTS = "events"
_WEEK_S = 7 * 86_400.0
_RETRAIN_S = 2 * 86_400.0
_RETRAINED = 4.0
"""A shorter trace has this many trainings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command's options, read. ``log``: a file or URL; empty: the configured Redis."""

    traces: tuple[Path, ...]
    workloads: tuple[str, ...]
    log: str | None
    models: tuple[str, ...]
    methods: tuple[str, ...]
    horizons_s: tuple[float, ...]
    days: float | None
    boosted: bool
    plot: Path | None


def results_of(asked: Asked) -> Iterator[tuple[str, BacktestRow]]:
    """Run everything that was asked for; progress goes to standard error.

    Raises
    ------
    Invalid
        An option cannot be; says which, and what is allowed.
    """
    _check(asked)
    for name, events in _histories(asked):
        yield from ((name, row) for row in _run(asked, name, events))


def _run(asked: Asked, name: str, events: Sequence[AnyEvent]) -> list[BacktestRow]:
    kept = _kept(events, asked.models)
    history = History.of(kept)
    # A trace is of nobody in particular; the own log is of people in the own time zone.
    config = PredictorConfig() if asked.log is None else _own_settings().predictor_config()
    plan = plan_for(name, history, config)
    if asked.boosted:
        # Before the library is loaded, which reads it once: threads that wait burn a core each.
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        from predictor.batch_training import Training

        plan = replace(plan, trainer=Training().train, retrain_s=_retrain_s(history))
    began_s = time.perf_counter()
    with Progress(console=Console(stderr=True)) as progress:
        task = progress.add_task(name, total=1.0)
        result = walk_forward(
            plan, kept, progress=lambda share: progress.update(task, completed=share)
        )
    sys.stderr.write(
        f"{name}: {result.events} requests for {result.models} models "
        f"in {time.perf_counter() - began_s:.0f} s\n"
    )
    if asked.plot is not None:
        from cli.backtest_plot import draw

        for path in draw(asked.plot, name, result):
            sys.stderr.write(f"drawn: {path}\n")
    return _chosen(asked, result.rows)


def _retrain_s(history: History) -> float:
    return min(_RETRAIN_S, (history.end_s - history.start_s) / _RETRAINED)


def _chosen(asked: Asked, rows: Sequence[BacktestRow]) -> list[BacktestRow]:
    unknown = set(asked.methods) - {row.method for row in rows}
    if unknown:
        known = ", ".join(dict.fromkeys(row.method for row in rows))
        raise Invalid(f"--method {min(unknown)!r}: there are {known}")
    return [
        row
        for row in rows
        if (not asked.methods or row.method in asked.methods)
        and (not asked.horizons_s or row.horizon_s in asked.horizons_s)
    ]


def _kept(events: Sequence[AnyEvent], wanted: Sequence[str]) -> list[AnyEvent]:
    """The events of the wanted models, in the order of time."""
    known = {model for event in events if (model := demand_of(event)) is not None}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise Invalid(f"--models {missing[0]!r}: no request names it")
    chosen = frozenset(map(ModelId, wanted)) or sampled(known, MAX_MODELS)
    if not wanted and len(known) > len(chosen):
        sys.stderr.write(f"{len(chosen)} of {len(known)} models are judged\n")
    kept = [event for event in events if getattr(event, "model", None) in chosen]
    return sorted(kept, key=lambda event: event.at_s)


def _histories(asked: Asked) -> Iterator[tuple[str, list[AnyEvent]]]:
    if asked.log is not None:
        yield EVENTS, _recorded(asked.log)
        return
    names = asked.workloads or tuple(guess_workload(trace) for trace in asked.traces)
    for name, trace in zip(names, asked.traces, strict=True):
        yield name, _told(load_workload(name, trace), asked.days)


def _recorded(source: str) -> list[AnyEvent]:
    """The last week of a log."""
    from cli.recorded_log import read_log

    if not source:
        url = _own_settings().redis_url
        if url is None:
            raise Invalid("--events: no Redis is configured; set REDIS_URL, or name a log by --log")
        source = url
    events, _, skipped = read_log(source)
    if skipped:
        sys.stderr.write(f"{skipped} records could not be read\n")
    newest_s = max(event.at_s for event in events)
    return [event for event in SeenEvents().fresh(events) if event.at_s >= newest_s - _WEEK_S]


def _own_settings() -> Settings:
    from adapters.settings import load_settings

    return load_settings(os.environ)


def _told(workload: Workload, days: float | None) -> list[AnyEvent]:
    """A trace's requests as a gateway would have written them."""
    until_s = float("inf") if days is None else days * 86_400.0
    return [
        RequestReceived(
            event_id=f"b{number}",
            at_s=arrival.at_s,
            source=EVENTS,
            request_id=RequestId(f"b{number}"),
            model=arrival.model,
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="",
            stream=False,
        )
        for number, arrival in enumerate(workload.arrivals)
        if arrival.at_s < until_s
    ]


def _check(asked: Asked) -> None:
    if (asked.log is None) == (not asked.traces):
        raise Invalid("name either --trace FILE, or --events or --log FILE|URL")
    if asked.workloads and len(asked.workloads) != len(asked.traces):
        raise Invalid(
            f"--workload names {len(asked.workloads)} workloads for {len(asked.traces)} traces"
        )
    for horizon_s in asked.horizons_s:
        if horizon_s not in HORIZONS_S:
            raise Invalid(f"--horizon {horizon_s:g}: there are 60, 300, 900 and 3600")
    if asked.plot is not None:
        from cli.backtest_plot import check_folder

        check_folder(asked.plot)
