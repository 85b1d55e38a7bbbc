"""``headstart up``: everything on this machine, under one process."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from adapters.settings import Settings
    from contracts.config import NodeConfig

LocalAIUrl = Annotated[
    str | None, typer.Option("--localai", help="Where LocalAI is.", show_default=False)
]
ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Configuration file.", show_default=False)
]
Without = Annotated[
    list[str] | None,
    typer.Option("--without", help="A service to leave out; may be repeated.", show_default=False),
]
Follow = Annotated[bool, typer.Option("--follow", help="Show the lines of all processes here.")]

_NOT_YET = "  (does not answer yet)"
_NO_KEY = "  (asks for a key: set localai.api_key or HEADSTART_LOCALAI__API_KEY)"
_WRONG_KEY = "  (does not take the key of localai.api_key)"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("up")(up)


def up(
    localai: LocalAIUrl = None,
    config: ConfigFile = None,
    without: Without = None,
    follow: Follow = False,
) -> None:
    """Start everything on this machine, and keep it running until Ctrl-C.

    Redis is started too, unless one is configured. The dashboard's address is printed once
    all is ready.
    """
    from adapters.log_setup import configure_logging
    from adapters.process_limits import harden
    from adapters.settings import load_settings
    from cli.services import SERVICES, checked_names

    harden()
    left_out = set(checked_names(without or ()))
    names = tuple(name for name in SERVICES if name not in left_out)
    environ = dict(os.environ)
    if config is not None:
        environ["HEADSTART_CONFIG"] = str(config.expanduser().absolute())
    if localai is not None:
        environ["HEADSTART_LOCALAI_URL"] = localai
    settings = load_settings(environ)
    configure_logging("up", json=settings.log_json, level=settings.log_level)
    for notice in settings.notices:
        print(f"note: {notice}")
    asyncio.run(_serve(names, settings, environ, follow=follow))


async def _serve(
    names: tuple[str, ...], settings: Settings, environ: Mapping[str, str], *, follow: bool
) -> None:
    from adapters.embedded_server import provided_server
    from adapters.folder_format import settle_folder
    from adapters.redis_format import settle_at_start
    from adapters.settings import load_settings
    from cli.ports import require_free
    from cli.services import child_environment, service_specs, wanted_ports
    from cli.supervisor import Supervisor

    require_free(wanted_ports(names, settings))
    settle_folder(settings.data_dir)
    async with provided_server(settings.redis_url, settings.data_dir) as redis_url:
        await asyncio.to_thread(settle_at_start, redis_url, settings.jobs_url or redis_url)
        told = {
            **environ,
            "HEADSTART_DATA_DIR": str(settings.data_dir),
            "HEADSTART_REDIS_URL": redis_url,
        }
        settings = load_settings(told)
        specs = service_specs(names, settings, child_environment(told, settings), watch_redis=False)
        supervisor = Supervisor(
            specs,
            log_dir=settings.data_dir / "logs",
            terminal=sys.stderr if follow else None,
        )
        greeting = await _greeting(names, settings)
        await supervisor.serve(on_ready=lambda: print(greeting, flush=True))


async def _greeting(names: tuple[str, ...], settings: Settings) -> str:
    from adapters.redis_client import redact
    from cli.services import control_url, gateway_url, redis_answers

    lines = []
    if "gateway" in names:
        lines.append(f"gateway    {gateway_url(settings)}  (clients go here instead of LocalAI)")
    if "control" in names:
        lines.append(f"dashboard  {control_url(settings)}")
    nodes = settings.gateway_config().nodes
    lines += [f"LocalAI    {node.url}{await _remark(node)}" for node in nodes]
    if settings.redis_url is not None:
        answers = await redis_answers(settings.redis_url)
        lines.append(f"Redis      {redact(settings.redis_url)}{'' if answers else _NOT_YET}")
    mode = "active" if settings.active_by_default else "observe: decides, orders nothing"
    lines.append(f"mode       {mode}, unless another was set on the dashboard")
    lines.append(f"logs       {settings.data_dir / 'logs'}")
    return "\n".join([*lines, "Ctrl-C ends all of it."])


async def _remark(node: NodeConfig) -> str:
    """What keeps LocalAI from being used, if anything does: it is ready for anybody, keys apart."""
    from cli.readiness import answer_status, answers_200

    url = node.url.rstrip("/")
    if not await answers_200(f"{url}/readyz"):
        return _NOT_YET
    if await answer_status(f"{url}/v1/models", api_key=node.api_key) in (401, 403):
        return _WRONG_KEY if node.api_key else _NO_KEY
    return ""
