"""LocalAI's backend calls: load, shutdown, monitor, and the list of what is loaded."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from emulator.context import Emulator
from emulator.errors import send_echo_error, send_error, send_not_found
from emulator.failures import DEAD_ADDRESS, failure_of
from emulator.http import Reply, Request, read_json
from emulator.instance import Refusal
from simulator.localai_effects import RefusalKind

BACKEND = "emulated"


async def load(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /backend/load``: any name is tried; an alias is not resolved."""
    body = await _read(request, reply)
    if body is None:
        return
    model = body.get("model")
    if not isinstance(model, str) or not model:
        await reply.json(400, {"loaded": None, "message": "model is required"})
        return
    identity = request.headers.get("x-request-id") or str(uuid.uuid4())
    try:
        await app.instance.load(model, identity)
    except Refusal as refusal:
        known = app.catalog.model(model) is not None
        failure = failure_of(refusal, model, configured=known)
        message = f"failed to load model: {failure.message}"
        await reply.json(500, {"loaded": None, "message": message})
        return
    await reply.json(200, {"loaded": [model], "message": "model loaded"})


async def shutdown(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /backend/shutdown``: waits up to 30 s for a busy model."""
    body = await _read(request, reply)
    if body is None:
        return
    model = body.get("model")
    if not isinstance(model, str) or not model:
        await send_echo_error(reply, 400, "model is required")
        return
    if app.faults.take("unload_404", model) is not None:
        await send_not_found(reply)
        return
    if app.faults.take("unload_500", model) is not None:
        await send_error(reply, 500, f"error stopping model {model}: emulated failure")
        return
    try:
        await app.instance.stop(model)
    except Refusal as refusal:
        await _send_stop_failure(reply, refusal, model)
        return
    await reply.json(200, {"message": "model stopped"})


async def monitor(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /backend/monitor?model=``; the name may also stand in a body."""
    model = request.query.get("model", "")
    if not model and request.body:
        named = (read_json(request.body) or {}).get("model")
        model = named if isinstance(named, str) else ""
    if not model:
        await send_echo_error(reply, 400, "model query parameter is required")
        return
    try:
        busy = await app.instance.is_busy(model)
    except Refusal as refusal:
        await send_error(reply, 500, _monitor_message(refusal, model))
        return
    known = app.catalog.model(model)
    memory_bytes = 0 if known is None else known.footprint_bytes
    memory = {"total": memory_bytes, "breakdown": {"weights": memory_bytes}}
    await reply.json(200, {"state": 1 if busy else 2, "memory": memory})


async def system(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /system``: what this process believes to be loaded."""
    loaded = [{"id": name, "backend": BACKEND} for name in app.instance.machine.listed()]
    await reply.json(200, {"backends": [BACKEND], "loaded_models": loaded})


async def _read(request: Request, reply: Reply) -> Mapping[str, Any] | None:
    if request.content_type != "application/json":
        await send_echo_error(reply, 415, "Unsupported Media Type")
        return None
    body = read_json(request.body)
    if body is None:
        await send_echo_error(reply, 400, "unexpected EOF, internal=unexpected EOF")
    return body


async def _send_stop_failure(reply: Reply, refusal: Refusal, model: str) -> None:
    match refusal.kind:
        case RefusalKind.NOT_LOADED:
            await send_not_found(reply)
        case RefusalKind.BUSY:
            message = f"model is still busy: {model}: context deadline exceeded"
            await send_error(reply, 500, message)
        case _:
            message = f'waiting to shut down model "{model}": context deadline exceeded'
            await send_error(reply, 500, message)


def _monitor_message(refusal: Refusal, model: str) -> str:
    if refusal.kind is RefusalKind.DEAD:
        return (
            f"backend {model} experienced an error retrieving status info via rpc: rpc error: "
            'code = Unavailable desc = connection error: desc = "transport: Error while dialing: '
            f'dial tcp {DEAD_ADDRESS}: connect: connection refused", then failed local node '
            f"process sample: no grpc backend found for {model}.bin"
        )
    return f"backend {model} is not currently loaded"
