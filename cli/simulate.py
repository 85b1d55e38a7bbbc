"""``headstart simulate``: what each policy would have made of a trace or a log, in seconds."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from cli.simulate_runs import Asked


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("simulate")(simulate)


Traces = Annotated[
    list[Path] | None,
    typer.Option(help="CSV file (may end in .gz); given again for several workloads."),
]
Events = Annotated[
    str | None, typer.Option(metavar="FILE|URL", help="A log that Headstart recorded itself.")
]
Workloads = Annotated[
    list[str] | None,
    typer.Option(help="gentd26, azure-fn, servegen or csv, one for each trace; by columns."),
]
Capacities = Annotated[
    str | None, typer.Option(metavar="N[,N]", help="GPU memory in MB, one or several sizes.")
]
Policies = Annotated[str, typer.Option(metavar="A[,B]", help="Policies, separated by commas.")]
From = Annotated[
    float, typer.Option("--from", min=0.0, help="First second of the trace that is played.")
]
To = Annotated[float | None, typer.Option("--to", min=0.0, help="Second at which it ends.")]
Minutes = Annotated[
    float | None, typer.Option(min=0.1, help="Length of the part, instead of --to.")
]
Reserve = Annotated[
    float, typer.Option(min=0.0, max=0.9, help="Share of memory that the product leaves free.")
]
Nodes = Annotated[int, typer.Option(min=1, max=64, help="GPUs, each of this memory.")]
Classes = Annotated[
    bool, typer.Option("--classes", help="60 % realtime, 25 % batch, 15 % background.")
]
Cold = Annotated[
    bool, typer.Option("--cold", help="Give the predictor no history of what is before --from.")
]
Seed = Annotated[int | None, typer.Option(min=0, help="What faults are drawn from.")]
WithFaults = Annotated[
    bool, typer.Option("--faults", help="Let things go wrong, as the seed says.")
]
SwarmOf = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Instead: N random worlds, every policy, checked."),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object, last line.")]
PlotTo = Annotated[
    Path | None, typer.Option(help="Draw residency and waits into this file (.png, .svg).")
]
Export = Annotated[
    Path | None, typer.Option(help="With --events URL: write the log into this file.")
]


def simulate(
    trace: Traces = None,
    events: Events = None,
    workload: Workloads = None,
    capacity_mb: Capacities = None,
    policy: Policies = "localai-lru,lru,headstart,oracle",
    from_s: From = 0.0,
    to_s: To = None,
    minutes: Minutes = None,
    reserve: Reserve = 0.0,
    nodes: Nodes = 1,
    classes: Classes = False,
    cold: Cold = False,
    seed: Seed = None,
    faults: WithFaults = False,
    swarm: SwarmOf = None,
    as_json: AsJson = False,
    plot: PlotTo = None,
    export: Export = None,
) -> None:
    """Play traffic on a virtual clock and say what each policy makes of it.

    localai-lru, lru, idle-timeout, gdsf, belady and oracle are rules to compare
    with; headstart is the product's own predictor and planner, and takes
    parameters, as in headstart:prefetch=false. Memory is empty at the start of the
    part that is played. Nothing is drawn at random but faults.
    """
    from cli.simulate_runs import Asked
    from contracts.errors import Invalid

    if swarm is not None:
        from cli.simulate_swarm import run_swarm

        if trace or events or plot:
            raise Invalid("--swarm draws its own workloads: no --trace, --events or --plot")
        run_swarm(swarm, seed or 0, as_json=as_json)
        return
    asked = Asked(
        traces=tuple(trace or ()),
        workloads=tuple(_split(workload)),
        events=events,
        export=export,
        capacities=None if capacity_mb is None else _listed("--capacity-mb", capacity_mb),
        policies=_listed("--policy", policy),
        from_s=from_s,
        until_s=_until_s(from_s, to_s, minutes),
        reserve_ratio=reserve,
        nodes=nodes,
        classes=classes,
        cold=cold,
        seed=seed if not faults else seed or 0,
        faults=faults,
        plot=plot,
    )
    _report(asked, as_json=as_json)


def _report(asked: Asked, *, as_json: bool) -> None:
    from cli.simulate_runs import rows_of

    rows = rows_of(asked)
    if as_json:
        found = {"rows": [row.as_dict() for row in rows], "seed": asked.seed}
        sys.stdout.write(json.dumps(found) + "\n")
        return
    from cli.simulate_table import print_rows

    print_rows(rows)


def _split(given: list[str] | None) -> list[str]:
    """Names, given one by one or with commas."""
    parts = (part.strip() for text in given or () for part in text.split(","))
    return [part for part in parts if part]


def _until_s(from_s: float, to_s: float | None, minutes: float | None) -> float | None:
    from contracts.errors import Invalid

    if to_s is not None and minutes is not None:
        raise Invalid("--to and --minutes: give one of them")
    if to_s is not None and to_s <= from_s:
        raise Invalid(f"--to {to_s:g}: must be later than --from {from_s:g}")
    return from_s + 60.0 * minutes if minutes is not None else to_s


def _listed(option: str, text: str) -> tuple[str, ...]:
    """The parts between commas, each once."""
    from contracts.errors import Invalid

    parts = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not parts:
        raise Invalid(f"{option}: is empty")
    return parts
