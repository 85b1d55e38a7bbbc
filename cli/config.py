"""``headstart config``: is the configuration right, and where does each value come from."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

File = Annotated[
    Path | None,
    typer.Argument(
        help="The file. Default: the one that the services would read.", show_default=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object.")]


def register(app: typer.Typer) -> None:
    """Add ``headstart config`` with its subcommands."""
    group = typer.Typer(
        no_args_is_help=True, help="Check and show the configuration.", rich_markup_mode=None
    )
    group.command("check")(check)
    group.command("show")(show)
    group.command("schema")(schema)
    group.command("docs")(docs)
    group.command("example")(example)
    group.command("import")(take_over)
    app.add_typer(group, name="config")


def check(file: File = None) -> None:
    """Say what is wrong, or what is right but has no effect yet. Exit code 2 when wrong."""
    from adapters.settings import load_settings

    settings = load_settings(os.environ, file)
    for notice in settings.notices:
        print(f"note: {notice}")
    where = "the defaults and the environment" if settings.file is None else settings.file
    print(f"ok: {where}")


def show(file: File = None, as_json: AsJson = False) -> None:
    """Each value in force and where it comes from; keys are shown as ***."""
    from adapters.settings import load_settings
    from adapters.settings_listing import entries

    settings = load_settings(os.environ, file)
    listed = entries(settings)
    if as_json:
        document = {
            "file": None if settings.file is None else str(settings.file),
            "environment": settings.environment or None,
            "time_scale": settings.time_scale,
            "values": [
                {"key": entry.key, "value": entry.value, "origin": entry.origin} for entry in listed
            ],
            "notices": list(settings.notices),
        }
        print(json.dumps(document, indent=2, ensure_ascii=False))
        return
    key_width = max(len(entry.key) for entry in listed)
    values = [json.dumps(entry.value, ensure_ascii=False) for entry in listed]
    value_width = min(40, max(len(value) for value in values))
    for entry, value in zip(listed, values, strict=True):
        print(f"{entry.key:<{key_width}}  {value:<{value_width}}  {entry.origin}")
    for notice in settings.notices:
        print(f"note: {notice}")


def schema() -> None:
    """Print the JSON schema of headstart.yaml, for editors."""
    from adapters.settings_keys import schema_text

    print(schema_text(), end="")


def docs() -> None:
    """Print the reference of all keys and variables, as Markdown."""
    from adapters.settings_docs import reference_page

    print(reference_page(), end="")


def take_over(
    files: Annotated[
        list[Path],
        typer.Argument(
            help="A compose file with its overlays, the file of a model-swapping proxy, LocalAI's "
            "model files or their folder."
        ),
    ],
    sidecar: Annotated[
        bool,
        typer.Option(
            "--sidecar", help="Print a compose file with Headstart, to put beside theirs, instead."
        ),
    ] = False,
) -> None:
    """Print a headstart.yaml made from files of other programs; what is not taken is told."""
    from adapters.import_compose import sidecar as beside
    from adapters.import_parts import as_yaml
    from adapters.imports import import_paths
    from contracts.errors import Invalid

    found, compose = import_paths(files, os.environ)
    if sidecar:
        if compose is None:
            raise Invalid("config import --sidecar: none of these is a compose file")
        print(as_yaml(beside(compose)), end="")
        return
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    print(f"# From {found.kind}: {', '.join(path.name for path in files)}")
    print(as_yaml(found.values), end="")


def example() -> None:
    """Print a headstart.yaml with every key and its default."""
    from adapters.settings_docs import example_file

    print(example_file(), end="")
