"""``headstart compose-scaler``: the one process that may speak to Docker, and only this much.

Two calls, a list of services with bounds, a token: whoever takes over another service of ours can
start and stop some containers of these, and nothing else.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from pathlib import Path
from typing import Annotated

import structlog
import typer
from aiohttp import web

from adapters.docker_engine import DockerServices
from adapters.log_setup import configure_logging
from contracts.errors import HeadstartError, Invalid, Permanent

_log = structlog.get_logger("headstart.compose_scaler")

TOKEN_VARIABLE = "HEADSTART_COMPOSE_SCALER_TOKEN"  # noqa: S105 - a name


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("compose-scaler")(compose_scaler)


def compose_scaler(
    allow: Annotated[
        list[str], typer.Option(metavar="SERVICE=MIN..MAX", help="What may be scaled; again.")
    ],
    project: Annotated[str, typer.Option(help="Name of the compose project.")] = "headstart",
    socket: Annotated[str, typer.Option(help="Docker's socket.")] = "/var/run/docker.sock",
    host: Annotated[str, typer.Option(help="Where to listen.")] = "0.0.0.0",  # noqa: S104 - a container's network
    port: Annotated[int, typer.Option(min=1, max=65535, help="Where to listen.")] = 8091,
    token_file: Annotated[
        Path | None, typer.Option(help=f"File that holds the token; else {TOKEN_VARIABLE}.")
    ] = None,
) -> None:
    """Start and stop containers of a compose project for the controller."""
    configure_logging("compose-scaler")
    asyncio.run(
        _serve(DockerServices(socket, project), bounds_of(allow), _token(token_file), host, port)
    )


def bounds_of(allow: list[str]) -> dict[str, tuple[int, int]]:
    """Least and most by service.

    Raises
    ------
    Invalid
        A word is none of ``SERVICE=MIN..MAX``.
    """
    bounds: dict[str, tuple[int, int]] = {}
    for word in allow:
        service, _, span = word.partition("=")
        least, _, most = span.partition("..")
        if not (service and least.isdecimal() and most.isdecimal() and int(least) <= int(most)):
            raise Invalid(f"--allow {word!r}: must be SERVICE=MIN..MAX, such as localai=1..4")
        bounds[service] = (int(least), int(most))
    return bounds


def scaler_app(
    services: DockerServices, bounds: dict[str, tuple[int, int]], token: str
) -> web.Application:
    """The two calls: ``GET`` and ``PUT /services/{name}``."""
    lock = asyncio.Lock()

    async def answer(request: web.Request) -> web.Response:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        if not hmac.compare_digest(shown, token.encode()):
            return _refusal(401, "no or wrong token")
        name = request.match_info["name"]
        if name not in bounds:
            return _refusal(404, f"only {', '.join(sorted(bounds))} may be scaled here")
        try:
            if request.method == "PUT":
                wanted = (await request.json()).get("replicas")
                least, most = bounds[name]
                if type(wanted) is not int or not least <= wanted <= most:
                    return _refusal(422, f"replicas = {wanted!r}: must be {least} to {most}")
                async with lock:
                    await services.scale(name, wanted)
                _log.info("scaled", service=name, replicas=wanted)
            found = await services.replicas(name)
        except (ValueError, AttributeError):
            return _refusal(422, 'the body must be {"replicas": number}')
        except HeadstartError as error:
            _log.warning("not_scaled", service=name, error=str(error))
            return _refusal(404 if isinstance(error, Permanent) else 503, str(error))
        return web.json_response({"ready": found.ready, "wanted": found.wanted})

    async def healthy(_request: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    app = web.Application(client_max_size=64 * 1024)
    app.router.add_get("/healthz", healthy)
    app.router.add_get("/services/{name}", answer)
    app.router.add_put("/services/{name}", answer)
    return app


async def _serve(
    services: DockerServices,
    bounds: dict[str, tuple[int, int]],
    token: str,
    host: str,
    port: int,
) -> None:
    runner = web.AppRunner(scaler_app(services, bounds, token))
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        _log.info("listening", host=host, port=port, services=sorted(bounds))
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
        await services.close()


def _token(file: Path | None) -> str:
    try:
        token = os.environ.get(TOKEN_VARIABLE, "") if file is None else file.read_text().strip()
    except OSError as error:
        raise Invalid(f"--token-file {file}: {error.strerror}") from error
    if len(token) < 16:
        raise Invalid(
            f"a token of 16 characters or more is needed: --token-file or {TOKEN_VARIABLE}"
        )
    return token


def _refusal(status: int, message: str) -> web.Response:
    return web.json_response({"error": message}, status=status)
