"""``headstart footprint``: everything that Headstart has written, and where."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from typing import Annotated, Any

import typer

from adapters.settings import Settings, load_settings
from cli.leftovers import Leftovers, look

Json = Annotated[bool, typer.Option("--json", help="One JSON object as the last line.")]


def register(app: typer.Typer) -> None:
    """Add ``headstart footprint``."""
    app.command("footprint")(footprint)


def footprint(*, json_: Json = False) -> None:
    """List what Headstart has written: models in LocalAI, keys in Redis, files here."""
    settings = load_settings(os.environ)
    found = asyncio.run(look(settings))
    if json_:
        sys.stdout.write(json.dumps(as_json(settings, found)) + "\n")
    else:
        show(settings, found)


def as_json(settings: Settings, found: Leftovers) -> dict[str, Any]:
    """The same for programs."""
    return {
        "variants": [
            {"node": one.node, "model": one.model, "of": one.of, "kind": one.kind}
            for one in found.variants
        ],
        "redis": found.redis_keys,
        "data_dir": str(settings.data_dir),
        "files": [
            {"path": str(one.path), "size_bytes": one.size_bytes, "files": one.files}
            for one in found.folders
        ],
        "elsewhere": found.elsewhere,
        "running": found.is_running,
        "faults": found.faults,
    }


def show(settings: Settings, found: Leftovers) -> None:
    """The same for people."""
    print("models in LocalAI")
    for one in found.variants:
        print(f"  {one.node}: {one.model} ({one.kind} of {one.of})")
    if not found.variants:
        print("  none")
    print("keys in Redis")
    if settings.redis_url is None:
        print("  in the data folder, where the embedded server keeps them")
    for prefix, count in found.redis_keys.items():
        print(f"  {prefix}* {count}")
    print(f"files in {settings.data_dir}")
    for folder in found.folders:
        size_mb = folder.size_bytes / 1024**2
        print(f"  {folder.path.name}: {folder.files} files, {size_mb:.1f} MB")
    if not found.folders:
        print("  none")
    for thing in found.elsewhere:
        print(f"not removed from here: {thing}")
    for fault in found.faults:
        print(f"not looked at: {fault}")
