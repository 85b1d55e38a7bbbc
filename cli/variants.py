"""``headstart variants``: models that Headstart made in LocalAI, and their end."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Annotated

import typer

from adapters.settings import Settings, load_settings
from cli.leftovers import MadeModel, localais
from contracts.errors import Transient
from contracts.ids import ModelId
from contracts.variants import Ladder

Json = Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")]
All = Annotated[bool, typer.Option("--all", help="Those of the configuration as well.")]
Dry = Annotated[bool, typer.Option("--dry-run", help="Say what would go, and remove nothing.")]


def register(app: typer.Typer) -> None:
    """Add ``headstart variants`` with its subcommands."""
    group = typer.Typer(
        no_args_is_help=True, help="Models that Headstart made in LocalAI.", rich_markup_mode=None
    )
    group.command("list")(list_)
    group.command("prune")(prune)
    app.add_typer(group, name="variants")


def list_(*, json_: Json = False) -> None:
    """List them, and whether the configuration still has a use for each."""
    settings = load_settings(os.environ)
    found = asyncio.run(_found(settings))
    rows = [(one, is_wanted(settings, one)) for one in found]
    if json_:
        told = [
            {"node": m.node, "model": m.model, "of": m.of, "kind": m.kind, "wanted": wanted}
            for m, wanted in rows
        ]
        sys.stdout.write(json.dumps({"variants": told}) + "\n")
        return
    for one, wanted in rows:
        use = "in use" if wanted else "no ladder names it"
        print(f"{one.node}: {one.model} ({one.kind} of {one.of}), {use}")
    if not rows:
        print("none")


def prune(*, all_: All = False, dry_run: Dry = False) -> None:
    """Remove those that no ladder names any more; never weights."""
    settings = load_settings(os.environ)
    found = asyncio.run(_found(settings))
    going = [one for one in found if all_ or not is_wanted(settings, one)]
    if not dry_run:
        asyncio.run(_remove(settings, going))
    for one in going:
        print(f"{'would remove' if dry_run else 'removed'} {one.node}: {one.model}")
    if not going:
        print("nothing to remove")


def is_wanted(settings: Settings, variant: MadeModel) -> bool:
    """Whether the configuration would have it made again."""
    config = settings.controller_config()
    ladder: Ladder | None = config.ladders.get(ModelId(variant.of))
    if ladder is not None and ladder.rungs:
        return any(rung.model == variant.model for rung in ladder.rungs)
    options = config.ladder_options
    return (options.partial and variant.kind == "partial") or (
        options.smaller_files and variant.kind == "quantised"
    )


async def _found(settings: Settings) -> list[MadeModel]:
    faults: list[str] = []
    async with localais(settings) as servers:
        found = await servers.variants(faults)
    if faults:
        raise Transient("; ".join(faults))
    return found


async def _remove(settings: Settings, variants: list[MadeModel]) -> None:
    async with localais(settings) as servers:
        await servers.remove(variants)
