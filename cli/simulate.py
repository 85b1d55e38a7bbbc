"""``headstart simulate``: what each policy would have made of a recorded trace, in seconds."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from simulator.workloads import Workload

LRU, ORACLE = "lru", "oracle"
"""The two policies that ``closure`` is measured between."""

_PLAYED_PER_UPDATE = 200


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


def simulate(
    trace: Annotated[Path, typer.Option(help="CSV file (may end in .gz).")],
    capacity_mb: Annotated[
        str, typer.Option(metavar="N[,N]", help="GPU memory in MB, one or several sizes.")
    ],
    workload: Annotated[
        str | None, typer.Option(help="gentd26, azure-fn, servegen or csv; default: by columns.")
    ] = None,
    policy: Annotated[
        str, typer.Option(metavar="A[,B]", help="Policies, separated by commas.")
    ] = "localai-lru,lru,headstart,oracle",
    from_s: Annotated[
        float, typer.Option("--from", min=0.0, help="First second of the trace that is played.")
    ] = 0.0,
    minutes: Annotated[
        float | None, typer.Option(min=0.1, help="Length of the part; default: to the end.")
    ] = None,
    reserve: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of memory that the product leaves free.")
    ] = 0.0,
    cold: Annotated[
        bool, typer.Option("--cold", help="Give the predictor no history of what is before --from.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Play a recorded trace on a virtual clock and say what each policy makes of it.

    localai-lru, lru, idle-timeout, gdsf, belady and oracle are rules to compare
    with; headstart is the product's own predictor and planner. Memory is empty at
    the start of the part that is played. Nothing is drawn at random.
    """
    from contracts.errors import Invalid
    from simulator.comparison import known_policies
    from simulator.workloads import guess_workload, load_workload

    policies = _listed("--policy", policy)
    for name in policies:
        if name not in known_policies():
            raise Invalid(f"--policy {name!r}: known are {', '.join(known_policies())}")
    capacities = [_whole_mb(text) for text in _listed("--capacity-mb", capacity_mb)]
    whole = load_workload(workload or guess_workload(trace), trace)
    part = replace(whole, arrivals=whole.part(from_s, minutes))
    before = replace(whole, arrivals=() if cold else whole.between(0.0, from_s))
    rows = _rows(part, before, policies, capacities, reserve)
    result = {"workload": whole.name, "rows": rows, "seed": None}
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        _print(result, capacities)


def _rows(
    part: Workload,
    before: Workload,
    policies: list[str],
    capacities: list[int],
    reserve: float,
) -> list[dict[str, Any]]:
    from rich.console import Console
    from rich.progress import Progress

    from simulator.comparison import compare
    from simulator.history import history_events

    history = history_events((a.at_s, a.model, a.service_s, "trace") for a in before.arrivals)
    rows: list[dict[str, Any]] = []
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        for mb in capacities:
            for name in policies:
                task = progress.add_task(f"{name} at {mb} MB", total=len(part.arrivals))

                def played(count: int, task: Any = task) -> None:
                    if count % _PLAYED_PER_UPDATE == 0:
                        progress.update(task, completed=count)

                found = compare(
                    name, part, mb, history=history, reserve_ratio=reserve, played=played
                )
                progress.update(task, completed=len(part.arrivals))
                rows.append({**found.as_dict(), "capacity_mb": mb})
    _add_closure(rows)
    return rows


def _add_closure(rows: list[dict[str, Any]]) -> None:
    """Where both ends of the scale were run at a capacity, how far along it each policy is."""
    from simulator.report import closure

    slo = {(row["capacity_mb"], row["policy"]): row["slo"] for row in rows}
    for row in rows:
        lru, oracle = (slo.get((row["capacity_mb"], end)) for end in (LRU, ORACLE))
        if lru is not None and oracle is not None:
            row["closure"] = closure(row["slo"], lru=lru, oracle=oracle)


_COLUMNS = {
    "policy": ("policy", "{}"),
    "cold": ("cold", "{:.3f}"),
    "slo": ("slo", "{:.3f}"),
    "mean_wait_s": ("mean s", "{:.2f}"),
    "p50_wait_s": ("p50 s", "{:.1f}"),
    "p95_wait_s": ("p95 s", "{:.1f}"),
    "p99_wait_s": ("p99 s", "{:.1f}"),
    "loads": ("loads", "{}"),
    "prefetches": ("ahead", "{}"),
    "wasted_prefetches": ("wasted", "{}"),
    "closure": ("closure", "{:.2f}"),
}
"""What a terminal of 80 columns shows: heading and format by a row's key."""

_LEGEND = (
    "cold: share that met a model not resident; slo: share that waited no longer than its "
    "target; s: seconds waited; ahead: prefetches; closure: 0 is lru, 1 is clairvoyant"
)


def _print(result: dict[str, Any], capacities: list[int]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    console = Console()
    for mb in capacities:
        rows = [row for row in result["rows"] if row["capacity_mb"] == mb]
        table = Table(
            title=f"{result['workload']}: {rows[0]['n']} requests, {mb} MB",
            box=SIMPLE_HEAD,
            padding=0,
            title_justify="left",
        )
        shown = {name: column for name, column in _COLUMNS.items() if name in rows[0]}
        for name, (heading, _) in shown.items():
            table.add_column(heading, justify="left" if name == "policy" else "right", no_wrap=True)
        for row in rows:
            table.add_row(*(_cell(row[name], form) for name, (_, form) in shown.items()))
        console.print(table)
    console.print(_LEGEND, style="dim")


def _cell(value: object, form: str) -> str:
    return "-" if value is None else form.format(value)


def _listed(option: str, text: str) -> list[str]:
    """The parts between commas, each once."""
    from contracts.errors import Invalid

    parts = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise Invalid(f"{option}: is empty")
    return parts


def _whole_mb(text: str) -> int:
    from contracts.errors import Invalid

    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise Invalid(f"--capacity-mb {text!r}: must be a whole number of MB above 0")
    return int(text)
