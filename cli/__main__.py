"""The command line: ``headstart``, one file per subcommand, imported when it is called."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import Annotated

import typer

from cli.usage import UsageError, usage_line
from contracts.errors import HeadstartError, Invalid

INVALID_EXIT = 2
FAILED_EXIT = 1

COMMANDS: Mapping[str, tuple[str, str]] = {
    "up": ("cli.up", "Start everything on this machine."),
    "serve": ("cli.serve", "Run one process of the stack, such as the gateway."),
    "health": ("cli.health", "Say whether a process of the stack does its work."),
    "doctor": ("cli.doctor", "Look a deployment over, and say what to do."),
    "explain": ("cli.explain", "Say why a model is loaded, or is not."),
    "backup": ("cli.backup", "Keep model files and what people set."),
    "config": ("cli.config", "Check and show the configuration."),
    "keys": ("cli.keys", "Make keys for callers of the gateway."),
    "jobs": ("cli.jobs", "See, cancel and retry background jobs and batches."),
    "compose-scaler": ("cli.compose_scaler", "Start and stop containers for the controller."),
    "demo": ("cli.demo", "See forecasts at work, with an emulated LocalAI."),
    "emulate": ("cli.emulate", "Run an emulated LocalAI."),
    "replay": ("cli.replay", "Send a recorded trace through a whole stack."),
    "bench": ("cli.bench", "Measure what parts of Headstart cost."),
    "variants": ("cli.variants", "See and remove models that Headstart made in LocalAI."),
    "gpu": ("cli.gpu", "See the GPUs, and hand them over to another program."),
    "footprint": ("cli.footprint", "List everything that Headstart has written."),
    "remove": ("cli.remove", "Take everything away that Headstart has written."),
    "simulate": ("cli.simulate", "Compare policies on a workload in virtual time."),
    "backtest": ("cli.backtest", "Score forecasts on a trace or on the own log."),
}
"""Subcommands: the module whose ``register(app)`` adds each, and what its line in help says."""

_COMPLETION_VARIABLE = "_HEADSTART_COMPLETE"


def main() -> None:
    """Run the command line; an expected failure is one line on standard error."""
    arguments = sys.argv[1:]
    try:
        code = build_app(arguments)(prog_name="headstart", standalone_mode=False)
    except UsageError as error:
        sys.stderr.write(f"{usage_line(error, arguments)}\n")
        sys.exit(INVALID_EXIT)
    except HeadstartError as error:
        for line in str(error).splitlines():
            sys.stderr.write(f"headstart: {line}\n")
        sys.exit(INVALID_EXIT if isinstance(error, Invalid) else FAILED_EXIT)
    sys.exit(code or 0)


def build_app(arguments: Sequence[str]) -> typer.Typer:
    """The application for these arguments.

    Only the module of the chosen subcommand is imported; the others are there by name and
    help alone. A subcommand whose module is not installed is left out.
    """
    app = typer.Typer(
        name="headstart",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # its tables cut the names of options at 80 columns
    )
    app.callback()(_root)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    completing = _COMPLETION_VARIABLE in os.environ
    for name, (module, summary) in COMMANDS.items():
        if find_spec(module) is None:
            continue
        if name == chosen or completing:
            import_module(module).register(app)
        else:
            app.command(name, help=summary)(_placeholder(name))
    return app


def installed_version() -> str:
    """The version of the installed package."""
    try:
        return version("headstart")
    except PackageNotFoundError:
        return "(not installed)"


def _print_version(asked: bool) -> None:
    if asked:
        print(f"headstart {installed_version()}")
        raise typer.Exit


def _root(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version.", is_eager=True, callback=_print_version
        ),
    ] = False,
) -> None:
    """Have each model loaded before it is asked for."""


def _placeholder(name: str) -> Callable[[], None]:
    def run() -> None:
        raise Invalid(f"{name}: must be the first word after the options of headstart itself")

    return run


if __name__ == "__main__":
    main()
