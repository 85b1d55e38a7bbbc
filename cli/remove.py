"""``headstart remove``: takes away everything that Headstart has written."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import Annotated

import typer

from adapters.settings import load_settings
from cli.footprint import show
from cli.leftovers import look, remove
from contracts.errors import Invalid, Transient

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add ``headstart remove``."""
    app.command("remove")(remove_all)


def remove_all(*, yes: Yes = False) -> None:
    """Leave LocalAI, Redis and this machine as they were before.

    The configuration that you wrote stays, and so does whatever else lies in the data folder.
    """
    settings = load_settings(os.environ)
    found = asyncio.run(look(settings))
    if found.is_running:
        raise Invalid("a controller is running: stop headstart first")
    if found.faults:
        raise Transient("; ".join(found.faults) + ": nothing was removed")
    if found.is_empty:
        print("nothing of headstart's is left")
        return
    show(settings, found)
    if not yes and not _agreed():
        raise Invalid("nothing was removed: say --yes, or answer with y")
    for line in asyncio.run(remove(settings, found)):
        print(f"removed {line}")


def _agreed() -> bool:
    if not sys.stdin.isatty():
        return False
    return input("Remove all of it? [y/N] ").strip().lower() in ("y", "yes")
