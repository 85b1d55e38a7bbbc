"""``headstart replay``: a recorded trace through a whole stack of real processes, judged."""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

FILE_WIDTH = 200
"""Columns where nobody looks: a table in a file keeps its words."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("replay")(replay)


def replay(
    trace: Annotated[Path, typer.Argument(help="CSV file (may end in .gz).")],
    workload: Annotated[
        str | None, typer.Option(help="gentd26, azure-fn, servegen or csv; default: by columns.")
    ] = None,
    capacity_mb: Annotated[int, typer.Option(min=1, help="GPU memory in MB.")] = 48_000,
    policy: Annotated[
        str, typer.Option(help="Policies to run, separated by commas.")
    ] = "headstart",
    against: Annotated[
        str | None, typer.Option(help="localai-lru: LocalAI's own LRU, without Headstart.")
    ] = None,
    time_scale: Annotated[
        float, typer.Option(min=1.0, max=200.0, help="Seconds of the trace in a real second.")
    ] = 30.0,
    from_s: Annotated[float, typer.Option("--from", min=0.0, help="Seconds into the trace.")] = 0.0,
    minutes: Annotated[float, typer.Option(min=0.1, help="Length of the measured part.")] = 60.0,
    reserve: Annotated[
        float, typer.Option(min=0.0, max=0.9, help="Share of memory left free.")
    ] = 0.0,
    cold: Annotated[
        bool, typer.Option("--cold", help="Give the predictor no history of the hours before.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
    keep: Annotated[Path | None, typer.Option(help="Keep logs and data in this folder.")] = None,
) -> None:
    """Send a recorded trace through real processes and say what each policy made of it.

    Every side runs at the same time on the same machine, with the same requests. A load takes
    exactly the workload's load time. Waits are seconds of the trace.
    """
    from adapters.log_setup import configure_logging
    from cli.replay_arm import LOCALAI_LRU, ReplayPlan
    from contracts.errors import Invalid
    from controller.policies.registry import policy_named
    from simulator.workloads import guess_workload, load_workload

    configure_logging("replay", level="warning")
    arms = [name.strip() for name in policy.split(",") if name.strip()]
    for name in arms:
        policy_named(name)
    if against not in (None, LOCALAI_LRU):
        raise Invalid(f"--against {against!r}: the only one is {LOCALAI_LRU}")
    if LOCALAI_LRU in arms:
        raise Invalid(f"--policy {LOCALAI_LRU}: say --against {LOCALAI_LRU}; it runs without us")
    loaded = load_workload(workload or guess_workload(trace), trace)
    plan = ReplayPlan(
        workload=loaded,
        capacity_mb=capacity_mb,
        from_s=from_s,
        until_s=from_s + 60.0 * minutes,
        time_scale=time_scale,
        reserve_ratio=reserve,
        cold=cold,
    )
    loaded.part(from_s, minutes)
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
    sides = [*arms, *([LOCALAI_LRU] if against else [])]
    with tempfile.TemporaryDirectory(prefix="headstart-replay-") as scratch:
        folder = keep or Path(scratch)
        for side in sides:
            (folder / side).mkdir(exist_ok=True)
        result = asyncio.run(_run(sides, plan, folder))
    _print(result, as_json=as_json)


async def _run(sides: list[str], plan: object, folder: Path) -> dict[str, object]:
    import psutil
    from rich.console import Console
    from rich.progress import Progress

    from cli.replay_arm import ReplayPlan, replay_arm

    assert isinstance(plan, ReplayPlan)
    psutil.cpu_percent()
    with Progress(console=Console(stderr=True)) as progress:
        tasks = {side: progress.add_task(side, total=1.0) for side in sides}
        judged = await asyncio.gather(
            *(
                replay_arm(
                    side,
                    plan,
                    folder / side,
                    lambda share, side=side: progress.update(tasks[side], completed=share),  # type: ignore[misc]  # mypy cannot infer a lambda's default
                )
                for side in sides
            )
        )
    return {
        "rows": [{**one.row.as_dict(), "failed": one.failed} for one in judged],
        "time_scale": plan.time_scale,
        "jitter_p99_s": max(one.jitter_p99_s for one in judged),
        "seed": 0,
        "machine_load_ratio": round(psutil.cpu_percent() / 100, 3),
    }


def _print(result: dict[str, object], *, as_json: bool) -> None:
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
        return
    from rich.table import Table

    from cli.plain_text import plain_console

    rows = result["rows"]
    assert isinstance(rows, list)
    table = Table()
    for name in rows[0]:
        table.add_column(name, justify="left" if name == "policy" else "right")
    for row in rows:
        table.add_row(
            *(f"{value:.4g}" if isinstance(value, float) else str(value) for value in row.values())
        )
    console = plain_console()
    if not console.is_terminal:
        console = plain_console(width=FILE_WIDTH)
    console.print(table)
    console.print(
        f"time scale {result['time_scale']:g}, requests late by {result['jitter_p99_s']:.3g} s "
        f"(p99, seconds of the trace), machine {result['machine_load_ratio']:.0%} busy; "
        "nothing is drawn at random (seed 0)"
    )
