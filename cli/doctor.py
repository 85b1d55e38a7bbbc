"""``headstart doctor``: looks a deployment over, and says what to do about what it finds."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from adapters.settings import load_settings
from cli.checkup.findings import Finding, Verdict

_COLOURS = {Verdict.OK: "green", Verdict.WARN: "yellow", Verdict.FAIL: "red"}


def register(app: typer.Typer) -> None:
    """Add ``headstart doctor``."""
    app.command("doctor")(doctor)


def doctor(
    *,
    warm_up: Annotated[
        bool,
        typer.Option("--warm-up", help="Load and ask models too, one after another."),
    ] = False,
    model: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="With --warm-up: only these; again.")
    ] = None,
    only_bad: Annotated[bool, typer.Option("--only-bad", help="Leave out what is well.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object as the last line.")
    ] = False,
) -> None:
    """Hardware, disks, ports, LocalAI, keys, Redis, clocks: each with why and what to do.

    The exit code is 1 when something fails, else 0.
    """
    from cli.checkup.looking import look

    chosen = tuple(model or ()) if warm_up or model else None
    found = asyncio.run(look(load_settings(os.environ), warm_up=chosen))
    shown = [one for one in found if not only_bad or one.verdict is not Verdict.OK]
    if as_json:
        typer.echo(json.dumps(as_object(shown)))
    else:
        show(shown)
    if any(one.verdict is Verdict.FAIL for one in found):
        raise typer.Exit(1)


def as_object(found: list[Finding]) -> dict[str, object]:
    """As ``--json`` tells it."""
    return {
        "findings": [
            {
                "check": one.check,
                "subject": one.subject,
                "verdict": one.verdict.value,
                "what": one.what,
                "remedy": one.remedy,
            }
            for one in found
        ],
        "worst": max(
            (one.verdict for one in found), key=list(Verdict).index, default=Verdict.OK
        ).value,
    }


def show(found: list[Finding]) -> None:
    """One line for each, a second with the remedy."""
    console = Console(highlight=False, soft_wrap=True)
    for one in found:
        line = Text(f"{one.verdict.value:5}", style=_COLOURS[one.verdict])
        console.print(line.append(f"{one.subject}: {one.what}", style="default"))
        if one.remedy:
            console.print(f"     → {one.remedy}", markup=False)
    counts = {verdict: sum(one.verdict is verdict for one in found) for verdict in Verdict}
    console.print(", ".join(f"{count} {verdict.value}" for verdict, count in counts.items()))
