"""``headstart explain MODEL``: why a model is loaded, or is not."""

from __future__ import annotations

import json
from typing import Annotated
from urllib.parse import quote

import typer

from cli.control_api import ControlApi, Url
from cli.plain_text import plain


def register(app: typer.Typer) -> None:
    """Add ``headstart explain``."""
    app.command("explain")(explain)


def explain(
    model: Annotated[str, typer.Argument(help="Its name, as LocalAI lists it.")],
    url: Url = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object as the last line.")
    ] = False,
) -> None:
    """What state it is in, how it came to be, and what would change it."""
    said = ControlApi(url).get(f"/v1/explain/{quote(model, safe='')}")
    if as_json:
        typer.echo(json.dumps(said))
        return
    for sentence in said["sentences"]:
        typer.echo(plain(sentence))
