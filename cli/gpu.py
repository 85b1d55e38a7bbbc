"""``headstart gpu``: what is seen of the GPUs, and handing them over to another program."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.table import Table

from cli.control_api import ControlApi, Url
from cli.plain_text import plain, plain_console

Json = Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")]
Minutes = Annotated[
    float | None,
    typer.Option(
        "--minutes", help="For how long. Default: until `resume`.", show_default=False, min=0.1
    ),
]
Keep = Annotated[int, typer.Option("--keep-mb", help="MiB that models may go on holding.", min=0)]
Note = Annotated[str, typer.Option("--note", help="What for; it is shown.", show_default=False)]

_GIB = 1024**3


def register(app: typer.Typer) -> None:
    """Add ``headstart gpu`` with its subcommands."""
    group = typer.Typer(
        no_args_is_help=True, help="What is seen of GPUs, and who has them.", rich_markup_mode=None
    )
    group.command("status")(status)
    group.command("yield")(yield_)
    group.command("resume")(resume)
    app.add_typer(group, name="gpu")


def status(url: Url = None, *, json_: Json = False) -> None:
    """Each card as it was last read, and whether the GPU is handed over."""
    api = ControlApi(url)
    gpu, nodes = api.get("/v1/gpu"), api.get("/v1/nodes")["data"]
    if json_:
        typer.echo(json.dumps({"gpu": gpu, "nodes": nodes}))
        return
    typer.echo(_sentence(gpu))
    rows = [_row(node["id"], card) for node in nodes for card in node["gpus"]]
    if not rows:
        typer.echo("no card is seen; what LocalAI tells of its memory is used")
        return
    table = Table(box=None, pad_edge=False)
    for column in ("node", "card", "name", "used", "others", "of", "busy", "temperature", "power"):
        table.add_column(column, overflow="fold", no_wrap=column not in ("node", "card", "name"))
    for row in rows:
        table.add_row(*map(plain, row))
    plain_console().print(table)


def yield_(minutes: Minutes = None, keep_mb: Keep = 0, note: Note = "", url: Url = None) -> None:
    """Have models let go of the GPU; nothing is loaded there until it is over."""
    body = {"minutes": minutes, "keep_mb": keep_mb, "note": note}
    typer.echo(_sentence(ControlApi(url).post("/v1/gpu/yield", body)))


def resume(url: Url = None) -> None:
    """Take the GPU back; models that had to go come back."""
    typer.echo(_sentence(ControlApi(url).post("/v1/gpu/resume")))


def _sentence(gpu: dict[str, Any]) -> str:
    if not gpu["yielded"]:
        return "the GPU is ours"
    by = "by a schedule" if gpu["by"] == "schedule" else "by hand"
    until = "until it is taken back"
    if gpu["until_s"] is not None:
        until = f"until {datetime.fromtimestamp(gpu['until_s']).astimezone():%H:%M:%S}"
    note = f" ({plain(gpu['note'])})" if gpu["note"] else ""
    held = f", models hold {_size(gpu['held_bytes'])}" if gpu["held_bytes"] else ""
    return f"the GPU is handed over {by}{note} {until}{held}"


def _row(node: str, card: dict[str, Any]) -> list[str]:
    total, free = card["memory_total_bytes"], card["memory_free_bytes"]
    used = card["memory_used_bytes"] if total is None or free is None else total - free
    return [
        node,
        card["uuid"],
        card["name"],
        _size(used),
        _size(card["used_by_others_bytes"]),
        _size(total),
        _told(card["utilization_ratio"], lambda ratio: f"{ratio:.0%}"),
        _told(card["temperature_celsius"], lambda degrees: f"{degrees:.0f} °C"),
        _told(card["power_watts"], lambda watts: f"{watts:.0f} W"),
    ]


def _size(size: int | None) -> str:
    return _told(size, lambda known: f"{known / _GIB:.1f} GiB")


def _told(value: Any, shown: Any) -> str:
    return "-" if value is None else str(shown(value))
