"""Paths that a single LocalAI answers with nothing to tell."""

from __future__ import annotations

from emulator.context import Emulator
from emulator.errors import send_error
from emulator.http import Reply, Request
from emulator.listing import version_text

PAGE = (
    b"<!doctype html><html><head><title>LocalAI (emulated)</title></head>"
    b'<body><div id="root"></div></body></html>\n'
)


async def start(_app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /``: over to the UI."""
    reply.add_header("Location", "/app")
    await reply.whole(301, b"", None)


async def page(_app: Emulator, _request: Request, reply: Reply) -> None:
    """The UI's page, which is also the answer to any unknown path that a browser asks for."""
    reply.add_header("Cache-Control", "no-cache")
    await reply.whole(200, PAGE, "text/html; charset=UTF-8")


async def load_status(_app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /api/models/{id}/load-status``: local loads are never shown."""
    model = request.params["id"]
    await send_error(reply, 404, f"no load is running for model {model}", "not_found_error")


async def operations(_app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/operations``."""
    await reply.json(200, {"operations": []})


async def well_known(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /.well-known/localai.json``."""
    capabilities = {"config_patch": True, "p2p": False, "tracing": True, "vram_estimate": True}
    await reply.json(200, {"capabilities": capabilities, "version": version_text(app)})


async def realtime(_app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /v1/realtime`` without an upgrade."""
    reply.add_header("Sec-Websocket-Version", "13")
    error = (
        '{"error":{"code":500,"message":"websocket: the client is not using the websocket '
        'protocol: \'upgrade\' token not found in \'Connection\' header","type":""}}'
    )
    body = f"Bad Request\n{error}\n".encode()
    await reply.whole(400, body, "text/plain; charset=utf-8")
