"""The processes of Headstart: what starts each, where it listens, how it is known to be ready."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import redis.asyncio

from adapters.clock import ANCHOR_VARIABLE
from adapters.redis_client import client_name, connect, mapped_errors
from adapters.settings import Settings
from cli.ports import WantedPort
from cli.service import ServiceSpec
from contracts.errors import Invalid, Permanent, Transient

SERVICES = ("gateway", "control", "predictor", "controller", "workers")
"""All of them, in the order in which people think of them."""

_MODULES: Mapping[str, tuple[str, ...]] = {
    "gateway": ("api.gateway",),
    "control": ("api.control",),
    "predictor": ("predictor",),
    "controller": ("controller",),
    "workers": ("workers", "--queue", "all"),
}
_STOP_S = 7.0
_WILDCARDS = {"0.0.0.0", "::", ""}  # noqa: S104 - compared with, not listened on


def checked_names(names: Sequence[str]) -> tuple[str, ...]:
    """``names``, if all are services. Raises Invalid, naming those there are."""
    for name in names:
        if name not in SERVICES:
            raise Invalid(f"{name!r} is no service; there are {', '.join(SERVICES)}")
    return tuple(names)


def child_environment(environ: Mapping[str, str], settings: Settings) -> dict[str, str]:
    """What every child process gets: our packages first, and one clock for all."""
    root = str(Path(__file__).resolve().parents[1])
    paths = [root, *filter(None, [environ.get("PYTHONPATH")])]
    child = {
        **environ,
        "PYTHONPATH": os.pathsep.join(paths),
        # Folders named api, data or workers where somebody starts us are not ours.
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }
    if settings.time_scale != 1.0:
        now_s = time.time()
        child.setdefault(ANCHOR_VARIABLE, f"{now_s!r}:{now_s!r}")
    return child


def gateway_url(settings: Settings) -> str:
    """Where clients on this machine reach the gateway."""
    config = settings.gateway_config()
    return _url(config.host, config.port)


def control_url(settings: Settings) -> str:
    """Where the control API and the dashboard are, seen from this machine."""
    config = settings.control_config()
    return _url(config.host, config.port)


def wanted_ports(names: Sequence[str], settings: Settings) -> list[WantedPort]:
    """The ports that these services listen on."""
    gateway, control = settings.gateway_config(), settings.control_config()
    ports = [
        WantedPort("gateway", gateway.host, gateway.port, "HEADSTART_GATEWAY_PORT"),
        WantedPort("control", control.host, control.port, "HEADSTART_CONTROL_PORT"),
    ]
    return [port for port in ports if port.service in names]


def service_specs(
    names: Sequence[str], settings: Settings, env: Mapping[str, str], *, watch_redis: bool
) -> list[ServiceSpec]:
    """How to run these services.

    ``watch_redis``: those without a port count as ready when they have reached Redis; else
    at once, so that nothing waits for a Redis that is away.
    """
    ready: dict[str, str | Callable[[int], Awaitable[bool]]] = {
        "gateway": gateway_url(settings) + "/headstart/healthz",
        "control": control_url(settings) + "/healthz",
    }
    redis_url, jobs_url = settings.redis_url, settings.jobs_url
    if watch_redis and redis_url is not None and jobs_url is not None:
        ready |= {
            "predictor": has_reached(redis_url),
            "controller": has_reached(redis_url),
            "workers": has_worker(jobs_url),
        }
    grace_s = settings.gateway_config().shutdown_grace_s / settings.time_scale
    return [
        ServiceSpec(
            name=name,
            argv=(sys.executable, "-m", *_MODULES[name]),
            env=env,
            ready=ready.get(name),
            stop_s=_STOP_S + grace_s if name == "gateway" else _STOP_S,
        )
        for name in names
    ]


async def redis_answers(redis_url: str) -> bool:
    """Whether Redis can be used now."""
    try:
        async with _client(redis_url) as client:
            await client.time()
    except (Transient, Permanent):
        return False
    return True


def has_reached(redis_url: str) -> Callable[[int], Awaitable[bool]]:
    """Whether the process of a pid has a connection to Redis."""

    async def ask(pid: int) -> bool:
        async with _client(redis_url) as client:
            clients = await client.client_list()
        return any(each.get("name") == client_name(pid) for each in clients)

    return _unless_away(ask)


def has_worker(jobs_url: str) -> Callable[[int], Awaitable[bool]]:
    """Whether a job worker has signed on."""

    async def ask(_: int) -> bool:
        async with _client(jobs_url) as client:
            return bool(await client.scard("rq:workers"))

    return _unless_away(ask)


def _unless_away(ask: Callable[[int], Awaitable[bool]]) -> Callable[[int], Awaitable[bool]]:
    async def answer(pid: int) -> bool:
        try:
            return await ask(pid)
        except Transient:
            return False

    return answer


@asynccontextmanager
async def _client(redis_url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = connect(redis_url)
    try:
        with mapped_errors("look for a process in Redis"):
            yield client
    finally:
        await client.aclose()


def _url(host: str, port: int) -> str:
    shown = "127.0.0.1" if host in _WILDCARDS else host
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"
