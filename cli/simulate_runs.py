"""What ``headstart simulate`` was asked for, and the runs that answer it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from contracts.errors import Invalid
from contracts.events import RequestCompleted, RequestReceived
from simulator.checkers import Violation
from simulator.comparison import (
    LRU,
    ORACLE,
    Setting,
    known_policies,
    play,
    simulation_row,
    summed_up,
)
from simulator.faults import NO_FAULTS, Faults, drawn_faults
from simulator.history import history_events
from simulator.report import Row, SimulationRow, closure
from simulator.simulation import Driver, Simulation
from simulator.workloads import Workload, guess_workload, load_workload

_PLAYED_PER_UPDATE = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The command's options, read."""

    traces: tuple[Path, ...]
    workloads: tuple[str, ...]
    events: str | None
    export: Path | None
    capacities: tuple[str, ...] | None
    policies: tuple[str, ...]
    from_s: float
    until_s: float | None
    reserve_ratio: float
    nodes: int
    classes: bool
    cold: bool
    seed: int | None
    faults: bool
    plot: Path | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What is played of one workload, what was before it, and on which sizes."""

    workload: Workload
    history: tuple[RequestReceived | RequestCompleted, ...]
    capacities: tuple[int, ...]
    happened: Row | None = None


def rows_of(asked: Asked) -> list[SimulationRow]:
    """Play everything that was asked for; progress goes to standard error.

    Raises
    ------
    Invalid
        An option cannot be; says which, and what is allowed.
    Violation
        Something that must hold did not; the command that shows it again was printed.
    """
    _check(asked)
    parts = [_recorded_part(asked)] if asked.events else list(_trace_parts(asked))
    if asked.plot is not None:
        from cli.simulate_plot import Plot, check_plot

        check_plot(asked.plot, parts=len(parts), capacities=len(parts[0].capacities))
        plot: Plot | None = Plot()
    else:
        plot = None
    rows: list[SimulationRow] = []
    with _progress() as advance:
        for part in parts:
            for mb in part.capacities:
                watch = plot.watch if plot is not None else None
                rows += _rows(asked, part, mb, advance, watch)
    if plot is not None and asked.plot is not None:
        plot.draw(asked.plot, title=f"{rows[0].workload}, {rows[0].capacity_mb} MB")
    return rows


def _check(asked: Asked) -> None:
    if bool(asked.traces) == bool(asked.events):
        raise Invalid("say what to play: --trace FILE, or --events FILE|URL (or --swarm N)")
    if asked.export is not None and not asked.events:
        raise Invalid("--export: writes the log that --events names")
    if asked.workloads and len(asked.workloads) != len(asked.traces):
        raise Invalid(
            f"--workload: {len(asked.workloads)} names for {len(asked.traces)} traces; "
            "give one for each --trace, or none"
        )
    for name in asked.policies:
        if name.partition(":")[0] not in known_policies():
            raise Invalid(f"--policy {name!r}: known are {', '.join(known_policies())}")
    if asked.events is None and asked.capacities is None:
        raise Invalid("--capacity-mb: say how much memory the GPU has, in MB")


def _trace_parts(asked: Asked) -> Iterator[_Part]:
    sizes = tuple(_whole_mb(text) for text in asked.capacities or ())
    for number, trace in enumerate(asked.traces):
        name = asked.workloads[number] if asked.workloads else guess_workload(trace)
        yield _part(asked, load_workload(name, trace, classes=asked.classes), 0.0, sizes)


def _recorded_part(asked: Asked) -> _Part:
    from cli.recorded_log import read_log, write_log
    from simulator.recorded import read_recording

    events, world, skipped = read_log(asked.events or "")
    if asked.export is not None:
        write_log(asked.export, events, world)
    recording = read_recording(events, world)
    _say_of(skipped, "records could not be read")
    _say_of(recording.passed_over, "requests named no model that exists, and are left out")
    _say_of(
        len(recording.guessed),
        "models were never seen to load: the median size is assumed for "
        + ", ".join(recording.guessed[:5]),
    )
    if asked.capacities is not None:
        sizes = tuple(_whole_mb(text) for text in asked.capacities)
    elif recording.capacity_mb is not None:
        sizes = (recording.capacity_mb,)
    else:
        raise Invalid("--capacity-mb: the log does not tell how much memory the GPU has")
    whole = recording.workload if asked.classes else recording.workload.realtime()
    part = _part(asked, whole, whole.arrivals[0].at_s, sizes)
    return replace(part, happened=recording.happened if part.workload == whole else None)


def _part(asked: Asked, whole: Workload, begin_s: float, sizes: tuple[int, ...]) -> _Part:
    """Seconds of the options count from ``begin_s``."""
    from_s = begin_s + asked.from_s
    minutes = None if asked.until_s is None else (asked.until_s - asked.from_s) / 60.0
    before = () if asked.cold else whole.between(0.0, from_s)
    return _Part(
        workload=replace(whole, arrivals=whole.part(from_s, minutes)),
        history=history_events((a.at_s, a.model, a.service_s, "trace") for a in before),
        capacities=sizes,
    )


Advance = Callable[[str, int, int], None]


def _rows(
    asked: Asked,
    part: _Part,
    mb: int,
    advance: Advance,
    watch: Callable[[str, Driver], Driver] | None,
) -> list[SimulationRow]:
    total = len(part.workload.arrivals)
    played: dict[str, Simulation] = {}

    def run(name: str, *, watched: bool) -> Simulation:
        def count(number: int) -> None:
            if number % _PLAYED_PER_UPDATE == 0:
                advance(label, number, total)

        label = f"{part.workload.name} {name} at {mb} MB"
        advance(label, 0, total)
        try:
            simulation = play(
                name,
                part.workload,
                _setting(asked, part.workload, mb),
                history=part.history,
                played=count,
                watch=lambda driver: (
                    watch(name, driver) if watched and watch is not None else driver
                ),
            )
        except (Violation, AssertionError):
            _say_again(asked, name)
            raise
        advance(label, total, total)
        return simulation

    for name in asked.policies:
        played[name] = run(name, watched=True)
    ends = {
        end: summed_up(end, played.get(end) or run(end, watched=False)) for end in (LRU, ORACLE)
    }
    rows = [simulation_row(name, played[name], ends) for name in asked.policies]
    if part.happened is not None:
        rows.insert(0, _happened_row(part.happened, part.workload.name, mb, ends))
    return rows


def _happened_row(row: Row, workload: str, mb: int, ends: dict[str, Row]) -> SimulationRow:
    return SimulationRow(
        workload=workload,
        capacity_mb=mb,
        policy=row.policy,
        n=row.n,
        cold=row.cold,
        slo=row.slo,
        closure=closure(row.slo, lru=ends[LRU].slo, oracle=ends[ORACLE].slo),
        mean_wait_s=row.mean_wait_s,
        p50_wait_s=row.p50_wait_s,
        p95_wait_s=row.p95_wait_s,
        p99_wait_s=row.p99_wait_s,
        loads=row.loads,
        prefetches=row.prefetches,
        wasted_prefetches=row.wasted_prefetches,
        unloads=0,
        gb_hours=0.0,
    )


def _setting(asked: Asked, workload: Workload, mb: int) -> Setting:
    return Setting(
        capacity_mb=mb,
        nodes=asked.nodes,
        reserve_ratio=asked.reserve_ratio,
        faults=_faults(asked, workload, mb),
    )


def _faults(asked: Asked, workload: Workload, mb: int) -> Faults:
    if not asked.faults:
        return NO_FAULTS
    largest_mb = max(model.size_mb for model in workload.models.values())
    return drawn_faults(
        asked.seed or 0,
        span_s=workload.arrivals[-1].at_s - workload.arrivals[0].at_s,
        nodes=asked.nodes,
        spare_mb=max(0, mb - largest_mb),
    )


def _say_again(asked: Asked, policy: str) -> None:
    """The seed and the command that shows a failure again."""
    sys.stderr.write(
        f"headstart: a check failed for {policy} (seed {asked.seed}); again with:\n"
        f"headstart {' '.join(sys.argv[1:])}\n"
    )


def _say_of(count: int, what: str) -> None:
    if count:
        sys.stderr.write(f"headstart: {count} {what}\n")


@contextmanager
def _progress() -> Iterator[Advance]:
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        tasks = {}

        def advance(label: str, done: int, total: int) -> None:
            if label not in tasks:
                tasks[label] = progress.add_task(label, total=total)
            progress.update(tasks[label], completed=done)

        yield advance


def _whole_mb(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise Invalid(f"--capacity-mb {text!r}: must be a whole number of MB above 0")
    return int(text)
