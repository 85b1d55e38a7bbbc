"""``headstart jobs``: what waits, runs, is over or has failed in the background."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer
from rich.table import Table

from cli.control_api import ControlApi, Url
from cli.plain_text import plain, plain_console
from contracts.errors import Invalid

Json = Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")]
JobId = Annotated[str, typer.Argument(help="Id of the job.", show_default=False)]
ChoreName = Annotated[
    str, typer.Argument(help="retention, backtest, retrain or profiles.", show_default=False)
]
Limit = Annotated[int, typer.Option("--limit", min=1, max=500, help="At most so many.")]
OfQueue = Annotated[
    str | None, typer.Option("--queue", help="Only this queue. Default: all.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add ``headstart jobs`` with its subcommands."""
    group = typer.Typer(
        no_args_is_help=True, help="Background jobs and batches.", rich_markup_mode=None
    )
    commands: dict[str, Callable[..., None]] = {
        "list": list_,
        "show": show,
        "cancel": cancel,
        "retry": retry,
        "run": run,
    }
    for name, command in commands.items():
        group.command(name)(command)
    app.add_typer(group, name="jobs")


def list_(
    queue: OfQueue = None, limit: Limit = 20, url: Url = None, *, json_: Json = False
) -> None:
    """How many jobs each queue has, which batches there are, and what has failed for good."""
    api = ControlApi(url)
    told = api.get("/v1/jobs")
    queues = [one for one in told["data"] if queue in (None, one["id"])]
    chores = told["maintenance"] if queue in (None, "maintenance") else []
    if not queues:
        raise Invalid(f"no queue is called {queue!r}")
    query = {"limit": limit} | ({} if queue is None else {"queue": queue})
    failed = api.get("/v1/jobs/failed?" + urlencode(query))["data"]
    batches = api.get(f"/v1/batches?limit={limit}")["data"] if queue in (None, "batch") else []
    if json_:
        typer.echo(
            json.dumps(
                {"queues": queues, "failed": failed, "batches": batches, "maintenance": chores}
            )
        )
        return
    console = plain_console()
    states = list(queues[0]["counts"])
    rows = [[one["id"], *(str(one["counts"].get(state, 0)) for state in states)] for one in queues]
    console.print(_table(["queue", *states], rows))
    if chores:
        console.print(_table(["maintenance", "next", "last", "was"], map(_chore_row, chores)))
    if batches:
        console.print(_table(["batch", "status", "lines", "left"], map(_batch_row, batches)))
    if failed:
        rows = [
            [
                one["id"],
                one["status"]["queue"],
                _time(one["status"].get("ended_at_s")),
                str(one["status"].get("error") or ""),
            ]
            for one in failed
        ]
        console.print(_table(["failed", "queue", "at", "why"], rows))
        console.print("Queue one again with: headstart jobs retry ID")


def show(job_id: JobId, url: Url = None, *, json_: Json = False) -> None:
    """What is known of one job, its answer too."""
    status = ControlApi(url).get(_path(job_id))["status"]
    if json_:
        typer.echo(json.dumps(status))
        return
    for name, value in status.items():
        text = _time(value) if name.endswith("_at_s") else _shown(value)
        typer.echo(f"{name.removesuffix('_s'):<12} {text}")


def cancel(job_id: JobId, url: Url = None) -> None:
    """Take a job out of its queue, or break it off where it runs."""
    status = ControlApi(url).post(_path(job_id) + "/cancel")["status"]
    is_running = status["state"] == "started"
    shown = plain(job_id)
    typer.echo(f"{shown} is being broken off" if is_running else f"{shown} is cancelled")


def run(chore: ChoreName, url: Url = None) -> None:
    """Do a chore of maintenance now, whatever its schedule says."""
    started = ControlApi(url).post(f"/v1/jobs/maintenance/{quote(chore, safe='')}")
    how = "is queued" if started["queued"] else "is queued already"
    typer.echo(f"{chore} {how}: headstart jobs show {started['id']}")


def retry(job_id: JobId, url: Url = None) -> None:
    """Queue a job once more that has failed for good."""
    ControlApi(url).post(_path(job_id) + "/retry")
    typer.echo(f"{plain(job_id)} is queued again")


def _path(job_id: str) -> str:
    return f"/v1/jobs/{quote(job_id, safe='')}"


def _batch_row(batch: dict[str, Any]) -> list[str]:
    counts, rest_s = batch["request_counts"], batch["headstart"]["rest_s"]
    done = f"{counts['completed']} + {counts['failed']} failed of {counts['total']}"
    return [batch["id"], batch["status"], done, "-" if rest_s is None else f"{rest_s:.0f} s"]


def _chore_row(chore: dict[str, Any]) -> list[str]:
    was = chore["last_state"] or "-"
    return [chore["id"], _time(chore["next_at_s"]), _time(chore["last_at_s"]), was]


def _table(columns: list[str], rows: Any) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*map(plain, row))
    return table


def _time(at_s: object) -> str:
    if not isinstance(at_s, int | float):
        return "-"
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return plain(value) if isinstance(value, str) else json.dumps(value)
