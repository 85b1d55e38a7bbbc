"""The command line: ``headstart`` with one file per subcommand, loaded when it is called."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec

import typer

from contracts.errors import HeadstartError, Invalid

COMMANDS = {
    name: f"cli.{name}" for name in ("up", "emulate", "replay", "simulate", "demo", "config")
}


def main() -> None:
    """Run the command line."""
    app = typer.Typer(name="headstart", no_args_is_help=True, add_completion=False)
    app.callback()(_root)
    chosen = next((word for word in sys.argv[1:] if not word.startswith("-")), None)
    wanted = [chosen] if chosen in COMMANDS else list(COMMANDS)
    for name in wanted:
        if find_spec(COMMANDS[name]) is not None:
            import_module(COMMANDS[name]).register(app)
    try:
        app()
    except Invalid as error:
        sys.stderr.write(f"headstart: {error}\n")
        sys.exit(2)
    except HeadstartError as error:
        sys.stderr.write(f"headstart: {error}\n")
        sys.exit(1)


def _root() -> None:
    """Have each model loaded before it is asked for."""


if __name__ == "__main__":
    main()
