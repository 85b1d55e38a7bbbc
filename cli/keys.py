"""``headstart keys``: keys for callers of the gateway, and their hashes for the configuration."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from typing import Annotated

import typer

from contracts.errors import Invalid


class KeyClass(StrEnum):
    """Classes as the configuration says them."""

    REALTIME = "realtime"
    BATCH = "batch"
    BACKGROUND = "background"


class HeaderRule(StrEnum):
    """What ``X-Headstart-Class`` may ask for."""

    LOWER = "lower"
    ANY = "any"
    FIXED = "fixed"


Name = Annotated[str, typer.Option("--name", help="Name of the key.", show_default=False)]
OfClass = Annotated[
    KeyClass | None,
    typer.Option("--class", help="Class of its requests. Default: the model's."),
]
Header = Annotated[
    HeaderRule | None,
    typer.Option(
        "--class-header", help="Classes that the header may ask for. Default: lower ones."
    ),
]
Models = Annotated[
    list[str] | None,
    typer.Option(
        "--models",
        help="Models it may use, such as 'chat-*'; may be repeated, or hold commas. Default: all.",
        show_default=False,
    ),
]
Rate = Annotated[
    float | None,
    typer.Option("--rate", help="Requests in a minute. Default: no limit.", show_default=False),
]
Weight = Annotated[
    float | None,
    typer.Option("--weight", help="What its requests count for. Default: 1.", show_default=False),
]


def register(app: typer.Typer) -> None:
    """Add ``headstart keys`` with its subcommands."""
    group = typer.Typer(
        no_args_is_help=True, help="Keys for callers of the gateway.", rich_markup_mode=None
    )
    group.command("new")(new)
    group.command("hash")(hash_)
    app.add_typer(group, name="keys")


def new(
    name: Name,
    key_class: OfClass = None,
    models: Models = None,
    rate: Rate = None,
    class_header: Header = None,
    weight: Weight = None,
) -> None:
    """Make a key: it is shown this once, with what to write into headstart.yaml.

    The key goes to standard error and the YAML to standard output, so that the latter can be
    kept without the former.
    """
    from adapters.key_hash import hash_line, new_key
    from adapters.settings_sample import checked_key

    key = new_key()
    entry: dict[str, object] = {"name": name, "hash": hash_line(key)}
    if key_class is not None:
        entry["priority_class"] = key_class.value
    if class_header is not None:
        entry["class_header"] = class_header.value
    if rate is not None:
        entry["requests_per_minute"] = rate
    if models:
        entry["models"] = [
            part.strip() for one in models for part in one.split(",") if part.strip()
        ]
    if weight is not None:
        entry["weight"] = weight
    checked_key(entry)
    sys.stderr.write(f"key (shown once, give it to who is to use it): {key}\n")
    sys.stderr.flush()
    print("gateway:\n  named_keys:")
    for index, (word, value) in enumerate(entry.items()):
        print(f"    {'-' if index == 0 else ' '} {word}: {json.dumps(value)}")


def hash_() -> None:
    """Read keys from standard input, one a line, and print the hash of each."""
    from adapters.key_hash import hash_line

    if sys.stdin.isatty():
        sys.stderr.write("keys, one a line, then Ctrl-D:\n")
    keys = [line.strip() for line in sys.stdin if line.strip()]
    if not keys:
        raise Invalid("no key came on standard input")
    for line in [hash_line(key) for key in keys]:
        print(line)
