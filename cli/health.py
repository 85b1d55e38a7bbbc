"""``headstart health [NAME]``: does this process of the stack do its work? For containers."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.serve import MODULES, Service
from contracts.errors import HeadstartError, Invalid, Transient

if TYPE_CHECKING:
    from redis.asyncio import Redis

_LIMIT_S = 5.0
_SNAPSHOT_AGE_S = 60.0
_FORECAST_AGE_S = 120.0
_PREDICTOR_AGE_S = 60.0
_WORKER_AGE_S = 90.0
_QUEUE_OPTION = "--queue"


def register(app: typer.Typer) -> None:
    """Add the subcommand."""
    app.command("health", help="Say whether a process of the stack does its work.")(health)


def health(
    service: Annotated[
        Service | None,
        typer.Argument(help="Which. Default: the one that this container runs."),
    ] = None,
    queue: Annotated[
        str | None, typer.Option(help="The workers' queue. Default: all queues.")
    ] = None,
) -> None:
    """One line, and exit code 0 when it works, 1 when it does not, 2 for a bad configuration."""
    if service is None:
        service, queue = _running(Path("/proc"))
    checks: Mapping[Service, Callable[[], str]] = {
        Service.GATEWAY: _gateway,
        Service.CONTROL: _control,
        Service.PREDICTOR: lambda: asyncio.run(_predictor()),
        Service.CONTROLLER: lambda: asyncio.run(_controller()),
        Service.WORKERS: lambda: _workers(queue),
    }
    try:
        sys.stdout.write(f"{service.value}: {checks[service]()}\n")
    except Invalid:
        raise
    except HeadstartError as error:
        sys.stdout.write(f"{service.value}: {error}\n")
        raise typer.Exit(1) from error


def _gateway() -> str:
    from adapters.settings import load_settings

    return _answers(load_settings(os.environ).gateway_config().port, "/headstart/healthz")


def _control() -> str:
    from adapters.settings import load_settings

    return _answers(load_settings(os.environ).control_config().port, "/healthz")


async def _predictor() -> str:
    """The one here lives, and forecasts are renewed, by it or by another.

    Before the first request there is nothing to forecast.
    """
    from adapters.redis_forecasts import RedisForecastStore
    from adapters.redis_predictors import RedisPredictorRoster
    from contracts.predictors import Standing

    async with _connected() as (client, now_s):
        beats = await RedisPredictorRoster(client).all()
        here = [beat for beat in beats if beat.host == socket.gethostname()]
        if here:
            newest = max(here, key=lambda beat: beat.at_s)
            said = _fresh("the last sign of life", now_s - newest.at_s, _PREDICTOR_AGE_S)
            if newest.standing is Standing.CATCHING_UP:
                raise Transient(f"still learns what it missed, {said}")
            if newest.standing is Standing.STANDBY:
                return f"stands by, {said}"
        forecasts = await RedisForecastStore(client).get_all()
    made = [item.made_at_s for forecast in forecasts.values() for item in forecast.signals]
    made += [item.next_use.made_at_s for item in forecasts.values() if item.next_use is not None]
    if not made:
        return "no model was asked for yet"
    return _fresh("the newest forecast", now_s - max(made), _FORECAST_AGE_S)


async def _controller() -> str:
    """Some controller leads and writes what it sees; one that stands by is healthy with it."""
    from adapters.redis_stores import RedisSnapshotStore

    async with _connected() as (client, now_s):
        world = await RedisSnapshotStore(client).world()
    if world is None:
        raise Transient("no controller has written what it sees")
    return _fresh("the newest snapshot", now_s - world.taken_at_s, _SNAPSHOT_AGE_S)


def _workers(queue: str | None) -> str:
    """Each queue has a worker on this host whose heart beats."""
    from adapters.redis_blocking import connect_blocking
    from adapters.rq_queue import RqJobQueue
    from workers.queues import QUEUES

    if queue is not None and queue != "all" and queue not in QUEUES:
        raise Invalid(f'queue "{queue}": must be one of {", ".join(QUEUES)}')
    names = list(QUEUES) if queue in (None, "all") else [str(queue)]
    host = socket.gethostname()
    with connect_blocking(_jobs_url()) as client:
        jobs = RqJobQueue(client, QUEUES)
        for name in names:
            ages = [worker.age_s for worker in jobs.workers(name) if worker.host == host]
            if not ages:
                raise Transient(f"no worker of this host serves {name}")
            _fresh(f"the last heartbeat for {name}", min(ages), _WORKER_AGE_S)
    return f"serves {', '.join(names)}"


@asynccontextmanager
async def _connected() -> AsyncIterator[tuple[Redis, float]]:
    """A connection, and the stack's time, for one check."""
    from adapters.clock import ScaledClock
    from adapters.redis_client import connect

    client = connect(_redis_url())
    try:
        yield client, ScaledClock.from_environment(os.environ).now_s()
    finally:
        await client.aclose()


def _redis_url() -> str:
    from adapters.settings import load_settings

    url = load_settings(os.environ).redis_url
    if url is None:
        raise Invalid("no Redis is configured: set HEADSTART_REDIS_URL")
    return url


def _jobs_url() -> str:
    from adapters.settings import load_settings

    return load_settings(os.environ).jobs_url or _redis_url()


def _answers(port: int, path: str) -> str:
    connection = HTTPConnection("127.0.0.1", port, timeout=_LIMIT_S)
    try:
        connection.request("GET", path)
        status = connection.getresponse().status
    except (OSError, HTTPException) as error:
        raise Transient(f"does not answer on port {port}: {error}") from error
    finally:
        connection.close()
    if status != 200:
        raise Transient(f"answers {status} on port {port}")
    return f"answers on port {port}"


def _fresh(what: str, age_s: float, limit_s: float) -> str:
    said = f"{what} is {max(0.0, age_s):.0f} s old"
    if age_s > limit_s:
        raise Transient(f"{said}, more than {limit_s:.0f} s")
    return said


def _running(proc: Path) -> tuple[Service, str | None]:
    """The service of the process with the lowest number, and its queue."""
    numbers = sorted(int(entry.name) for entry in proc.glob("[0-9]*"))
    for number in numbers:
        try:
            words = (proc / str(number) / "cmdline").read_bytes().decode().split("\0")
        except OSError:
            continue
        for service in Service:
            if "-m" in words and MODULES[service.value] in words:
                rest = words[words.index(MODULES[service.value]) :]
                named = _QUEUE_OPTION in rest
                return service, rest[rest.index(_QUEUE_OPTION) + 1] if named else None
    raise Invalid("no process of the stack runs here; name one")
