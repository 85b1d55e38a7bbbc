"""``headstart serve NAME``: become one of the stack's processes, as containers run them."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import Annotated

import typer

from contracts.errors import Invalid

MODULES = {
    "gateway": "api.gateway",
    "control": "api.control",
    "predictor": "predictor",
    "controller": "controller",
    "workers": "workers",
}


class Service(StrEnum):
    """The processes that there are."""

    GATEWAY = "gateway"
    CONTROL = "control"
    PREDICTOR = "predictor"
    CONTROLLER = "controller"
    WORKERS = "workers"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command(
        "serve",
        help="Run one process of the stack, such as the gateway.",
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True},
    )(serve)


def serve(
    context: typer.Context,
    service: Annotated[Service, typer.Argument(help="Which; further options are the process's.")],
) -> None:
    """Replace this process, so that signals and exit codes are the service's own."""
    if context.args and service is not Service.WORKERS:
        raise Invalid(f"serve {service.value}: takes no options, but was given {context.args[0]}")
    command = [sys.executable, "-m", MODULES[service.value], *context.args]
    sys.stdout.flush()
    os.execv(sys.executable, command)  # noqa: S606 - no shell is wanted
