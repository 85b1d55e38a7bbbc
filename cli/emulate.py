"""``headstart emulate``: run an emulated LocalAI."""

from __future__ import annotations

import typer

from emulator.__main__ import emulate


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("emulate")(emulate)
