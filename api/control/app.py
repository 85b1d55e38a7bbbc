"""Puts the control API together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from api import dashboard
from api.control.access import Door
from api.control.errors import install_error_handlers
from api.control.guard import Guard
from api.control.packing import Packing
from api.control.pages import page_router
from api.control.ports import ControlPorts
from api.control.room import ControlRoom, SettingsInForce
from api.control.routes import (
    autoscale,
    background,
    backtests,
    batches,
    comparisons,
    decisions,
    events,
    explain,
    files,
    forecasts,
    gpu,
    groups,
    health,
    jobs,
    kpis,
    metrics,
    mode,
    models,
    nodes,
    policies,
    predictors,
    profiles,
    queues,
    requests,
    settings,
    slas,
    summary,
)
from api.control.schemas import ErrorBody
from api.control.users import Users
from contracts.config import ControlConfig, GatewayConfig, PlannerConfig, WorkersConfig
from contracts.ports import Clock

VERSION = "1"

RESOURCES = (
    summary,
    profiles,
    models,
    forecasts,
    backtests,
    slas,
    decisions,
    mode,
    gpu,
    queues,
    autoscale,
    groups,
    nodes,
    comparisons,
    policies,
    predictors,
    jobs,
    files,
    batches,
    background,
    kpis,
    requests,
    explain,
    settings,
    events,
    health,
    metrics,
)
"""Modules whose routes there are; of two that fit a path the first answers."""

_DASHBOARD = Path(dashboard.__file__).parent

_ERRORS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody, "description": text}
    for status, text in {
        400: "A body that cannot be read, or a value that is not accepted; the message says which.",
        401: "No or wrong admin key.",
        403: "Only taken from this machine while no admin key is set.",
        404: "Not known; the message names the nearest known.",
        405: "Another method is taken here; `Allow` names it.",
        409: "It is not in a state for that; the message says in which it is.",
        413: "The body is too large; the message names the limit.",
        422: "A value is not accepted; the message names field, value and what is allowed.",
        503: "The store or the controller is away; the message says which.",
    }.items()
}


def create_app(
    config: ControlConfig,
    ports: ControlPorts,
    clock: Clock,
    *,
    gateway: GatewayConfig | None = None,
    default_target_s: float = PlannerConfig().default_target_s,
    settings_in_force: SettingsInForce = tuple,
    max_workers: int = WorkersConfig().max_processes,
) -> FastAPI:
    """The whole control API; nothing is read or started before its lifespan begins.

    Parameters
    ----------
    gateway : GatewayConfig, optional
        Its keys open files, batches and jobs; without it, or without keys in it, all may come.
    default_target_s : float
        The latency target that requests of models without one of their own are judged by.
    settings_in_force : callable, optional
        Each key with its value, secrets hidden, and its origin; for ``/v1/settings``.
    max_workers : int
        Processes that one queue of jobs may get; for ``/v1/autoscale``.
    """
    door = Door(config, clock)
    room = ControlRoom(
        config,
        ports,
        clock,
        users=Users(gateway or GatewayConfig(), door),
        door=door,
        default_target_s=default_target_s,
        settings=settings_in_force,
        max_workers=max_workers,
    )

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        await room.open()
        try:
            yield
        finally:
            await room.close()

    app = FastAPI(
        title="Headstart control API",
        description="Forecasts, targets, models, decisions. What is missing is null, never zero.",
        version=VERSION,
        # FastAPI's own pages load scripts from elsewhere; /docs is ours and works offline.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        responses=_ERRORS,
    )
    app.state.room = room
    install_error_handlers(app)
    app.add_middleware(Packing)
    app.add_middleware(Guard, metrics=room.metrics)
    for resource in RESOURCES:
        app.include_router(resource.router)
    app.include_router(page_router(_DASHBOARD))
    return app
