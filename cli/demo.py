"""``headstart demo``: everything at once on this machine, with traffic, to be looked at."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from contracts.errors import Invalid
from contracts.ids import ModelId

if TYPE_CHECKING:
    from adapters.clock import ScaledClock
    from adapters.settings import Settings
    from cli.traffic import Planned
    from simulator.recipe import Recipe

CAPACITY_MB = 24_000
HISTORY_S = 6 * 3600.0
START_OF_DAY_S = 9.5 * 3600.0
"""The demo's clock starts at half past nine (UTC): an office at work."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("demo")(demo)


def demo(
    localai: Annotated[
        str | None,
        typer.Option(help="Use this LocalAI instead of the emulated one; no traffic is made up."),
    ] = None,
    time_scale: Annotated[
        float, typer.Option(min=1.0, max=60.0, help="How much faster than real time it runs.")
    ] = 10.0,
    seconds: Annotated[
        float | None, typer.Option(min=1.0, help="End after so many real seconds.")
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Use this configuration file; else none is read, wherever one lies.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Show Headstart at work: an emulated LocalAI, people and jobs, a dashboard with forecasts."""
    from adapters.log_setup import configure_logging

    configure_logging("demo", level="warning")
    with (
        tempfile.TemporaryDirectory(prefix="headstart-demo-") as folder,
        contextlib.suppress(KeyboardInterrupt),
    ):
        environ = usual_ports(own_configuration(os.environ, config, Path(folder)))
        asyncio.run(_until_stopped(environ, localai, time_scale, seconds, Path(folder)))


def own_configuration(
    environ: Mapping[str, str], config: Path | None, folder: Path
) -> dict[str, str]:
    """With the file that was asked for, else with one that says nothing.

    A ``headstart.yaml`` of the current folder, of a home or of the machine is somebody's
    deployment: a demo with its models, ports and keys would show neither that nor itself.
    """
    if config is None:
        config = folder / "demo.yaml"
        config.write_text("# The demo has no configuration but the environment's.\n")
    return {**environ, "HEADSTART_CONFIG": str(config.expanduser().absolute())}


async def _until_stopped(
    environ: Mapping[str, str],
    localai: str | None,
    time_scale: float,
    seconds: float | None,
    folder: Path,
) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, stop.set)
    if localai is None:
        await _emulated(environ, time_scale, folder, stop)
    else:
        await _real(environ, localai, folder, stop)


async def _real(environ: Mapping[str, str], url: str, folder: Path, stop: asyncio.Event) -> None:
    """A real LocalAI is only watched until somebody changes the mode on the page."""
    from cli.stack import Stack

    env = {**environ, "HEADSTART_LOCALAI_URL": url}
    async with Stack(env, folder) as stack:
        _say(stack.control_url, stack.gateway_url, f"LocalAI at {url}, mode observe")
        await stop.wait()


async def _emulated(
    environ: Mapping[str, str], time_scale: float, folder: Path, stop: asyncio.Event
) -> None:
    from adapters.clock import ScaledClock
    from adapters.embedded_server import EmbeddedServer
    from cli.stack import Stack
    from emulator.models import load_yaml, read_models
    from simulator.recipe import parse_recipe

    recipe = parse_recipe(load_yaml(_data("traffic.yaml").read_text(encoding="utf-8")))
    env = _environment(environ, time_scale)
    clock = ScaledClock.from_environment(env)
    with as_file(_data("models.yaml")) as models_file:
        kinds = {ModelId(model.name): model.kind for model in read_models(models_file)}
        arguments = ["--models", str(models_file), "--capacity-mb", str(CAPACITY_MB)]
        async with EmbeddedServer(folder) as redis:
            await _seed(redis.url, recipe, clock)
            env["HEADSTART_REDIS_URL"] = redis.url
            async with Stack(env, folder, emulator_args=arguments) as stack:
                _say(
                    stack.control_url,
                    stack.gateway_url,
                    f"an emulated LocalAI with {len(kinds)} models in {CAPACITY_MB / 1000:g} GB, "
                    f"time {time_scale:g} times as fast",
                )
                await _with_traffic(stack.gateway_url, recipe, kinds, clock, stop)


async def _with_traffic(
    url: str,
    recipe: Recipe,
    kinds: Mapping[ModelId, str],
    clock: ScaledClock,
    stop: asyncio.Event,
) -> None:
    from cli.traffic import send_all

    traffic = asyncio.create_task(send_all(_planned(recipe, kinds, clock), url, clock))
    waiting = asyncio.create_task(stop.wait())
    await asyncio.wait({traffic, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (traffic, waiting):
        task.cancel()
    await asyncio.gather(traffic, waiting, return_exceptions=True)


def _planned(recipe: Recipe, kinds: Mapping[ModelId, str], clock: ScaledClock) -> Iterator[Planned]:
    from cli.traffic import Planned, streamed_request_of_kind

    for number, request in enumerate(recipe.requests(clock.now_s())):
        yield Planned(
            request_id=f"demo-{number}",
            model=request.model,
            due_s=request.at_s,
            service_s=request.service_s,
            headers={"X-Headstart-Class": request.priority},
            **streamed_request_of_kind(kinds[request.model]),
        )


async def _seed(redis_url: str, recipe: Recipe, clock: ScaledClock) -> None:
    """The hours before, so that there is something to forecast from."""
    from adapters.redis_client import connect
    from adapters.redis_events import RedisEventLog
    from cli.seeding import seed

    now_s = clock.now_s()
    past = recipe.requests(now_s - HISTORY_S, now_s)
    client = connect(redis_url)
    try:
        await seed(RedisEventLog(client), ((r.at_s, r.model, r.service_s, r.client) for r in past))
    finally:
        await client.aclose()


def _environment(environ: Mapping[str, str], time_scale: float) -> dict[str, str]:
    today = datetime.fromtimestamp(time.time(), UTC).replace(
        hour=0, minute=0, second=0, microsecond=0
    )
    clock_s = today.timestamp() + START_OF_DAY_S
    return {
        **environ,
        "HEADSTART_ENV": "dev",
        "HEADSTART_TIME_SCALE": repr(time_scale),
        "HEADSTART_TIME_ANCHOR": f"{time.time()!r}:{clock_s!r}",
        "HEADSTART_SCHEDULER__MODE": "active",
        # The emulated GPU has no other programs that a reserve would be for.
        "HEADSTART_MEMORY__RESERVE_RATIO": "0",
    }


def _data(name: str) -> Any:
    return files("data").joinpath("demo", name)


def usual_ports(environ: Mapping[str, str]) -> dict[str, str]:
    """With the configured ports, where nobody listens there; else, as for ``0``, any will do."""
    from cli.ports import is_free
    from cli.services import SERVICES, wanted_ports

    result = dict(environ)
    for wanted in wanted_ports(SERVICES, _configured(environ)):
        if not environ.get(wanted.variable) and is_free(wanted.host, wanted.port):
            result[wanted.variable] = str(wanted.port)
    return result


def _configured(environ: Mapping[str, str]) -> Settings:
    from adapters.settings import load_settings

    return load_settings({name: value for name, value in environ.items() if value != "0"})


def _say(control_url: str, gateway_url: str, what: str) -> None:
    hint = ""
    if control_url != _usual_control_url():
        hint = f"In a terminal: headstart explain MODEL --url {control_url}\n"
    sys.stdout.write(
        f"\nHeadstart runs with {what}.\n"
        f"  dashboard  {control_url}/\n"
        f"  gateway    {gateway_url}/v1\n"
        f"{hint}Stop it with Ctrl-C.\n"
    )
    sys.stdout.flush()


def _usual_control_url() -> str:
    """Where commands in this folder look; empty where its configuration cannot be read."""
    from cli.services import control_url

    try:
        return control_url(_configured(os.environ))
    except Invalid:
        return ""
