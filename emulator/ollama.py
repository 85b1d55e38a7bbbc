"""The Ollama shim: names are listed with ``:latest``, and unknown when asked for that way."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from emulator.backends import BACKEND
from emulator.context import Emulator, words
from emulator.errors import send_text_error
from emulator.http import Reply, Request, json_text, read_json
from emulator.models import EmulatedModel
from emulator.openai import stamp_correlation
from emulator.resolve import read_inference_body, resolve_model
from emulator.serving import Failed, do, serving
from emulator.work import Work, tokens_of

NDJSON = "application/x-ndjson"
VERSION = "0.9.0"
KEEP_S = 86_400.0
DIMENSIONS = 8

_CAPABILITIES = {"completion": "completion", "embeddings": "embedding"}


async def chat(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /api/chat``; a stream unless told otherwise."""
    await _generate(app, request, reply, _ChatShape())


async def generate(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /api/generate``; without a prompt nothing happens, whatever ``keep_alive`` says."""
    await _generate(app, request, reply, _TextShape())


async def embed(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /api/embed``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    name = await resolve_model(app, request, reply, body.get("model"), usecase="embeddings")
    if name is None:
        return
    given = body.get("input")
    inputs = given if isinstance(given, list) else [given]
    work = app.work(request, name, generates=False, share=len(inputs))
    started_s = app.clock.monotonic_s()
    try:
        await do(app, work, times=len(inputs))
    except Failed as failed:
        await send_text_error(reply, 500, f"embedding failed: {failed.failure.message}")
        return
    await reply.json(
        200,
        {
            "model": work.asked,
            "embeddings": [[0.1] * DIMENSIONS for _ in inputs],
            "total_duration": _nanoseconds(app.clock.monotonic_s() - started_s),
        },
    )


async def tags(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/tags``."""
    listed = []
    for entry in app.catalog.entries():
        shown = _model(entry.name, entry.model)
        shown["modified_at"] = _stamp(app)
        listed.append(shown)
    await reply.json(200, {"models": listed})


async def ps(app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/ps``: what LocalAI lists as loaded."""
    listed = []
    for name in app.instance.machine.listed():
        shown = _model(name, app.catalog.model(name))
        shown |= {"expires_at": _stamp(app, KEEP_S), "size_vram": 0}
        listed.append(shown)
    await reply.json(200, {"models": listed})


async def show(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /api/show``."""
    body = read_json(request.body) or {}
    name = str(body.get("model") or body.get("name") or "")
    model = app.catalog.model(app.catalog.resolve(name))
    if model is None:
        await send_text_error(reply, 404, f"model '{name}' not found")
        return
    shown = _model(name, model)
    answer = {
        "modelfile": f"FROM {model.name}",
        "parameters": "",
        "template": "{{.Input}}",
        "details": shown["details"],
        "model_info": {
            "general.architecture": BACKEND,
            "general.context_length": model.context_size,
        },
    }
    if "capabilities" in shown:
        answer["capabilities"] = shown["capabilities"]
    await reply.json(200, answer)


async def version(_app: Emulator, _request: Request, reply: Reply) -> None:
    """``GET /api/version``."""
    await reply.json(200, {"version": VERSION})


class _ChatShape:
    """How a chat's answer carries its text."""

    usecase = "chat"

    def prompt(self, body: Mapping[str, Any]) -> object:
        return body.get("messages")

    def loads_only(self, body: Mapping[str, Any]) -> bool:
        return not body.get("messages")

    def text(self, content: str, *, role: str = "assistant") -> dict[str, Any]:
        return {"message": {"role": role, "content": content}}


class _TextShape:
    """How a completion's answer carries its text."""

    usecase = "completion"

    def prompt(self, body: Mapping[str, Any]) -> object:
        return body.get("prompt")

    def loads_only(self, body: Mapping[str, Any]) -> bool:
        return not body.get("prompt")

    def text(self, content: str, *, role: str = "assistant") -> dict[str, Any]:
        assert role in ("assistant", "")
        return {"response": content}


_Shape = _ChatShape | _TextShape


async def _generate(app: Emulator, request: Request, reply: Reply, shape: _Shape) -> None:
    body = await read_inference_body(request, reply)
    if body is None:
        return
    name = await resolve_model(app, request, reply, body.get("model"), usecase=shape.usecase)
    if name is None:
        return
    stamp_correlation(request, reply)
    if shape.loads_only(body):
        head = {"model": name, "created_at": _stamp(app), **shape.text("")}
        await reply.begin_stream(NDJSON)
        await reply.chunk(_line({**head, "done": True, "done_reason": "load"}))
        await reply.end()
        return
    options = body.get("options")
    predict = options.get("num_predict") if isinstance(options, Mapping) else None
    work = app.work(request, name, max_tokens=predict, prompt_tokens=words(shape.prompt(body)))
    if body.get("stream", True) is False:
        await _plain(app, reply, work, shape)
    else:
        await _stream(app, reply, work, shape)


async def _plain(app: Emulator, reply: Reply, work: Work, shape: _Shape) -> None:
    started_s = app.clock.monotonic_s()
    try:
        await do(app, work)
    except Failed as failed:
        await send_text_error(reply, 500, _failed(failed.failure.message))
        return
    head = {"model": work.asked, "created_at": _stamp(app), **shape.text(work.text)}
    await reply.json(200, {**head, **_done(app, work, started_s)})


async def _stream(app: Emulator, reply: Reply, work: Work, shape: _Shape) -> None:
    started_s = app.clock.monotonic_s()
    try:
        async with serving(app, work) as slot:
            async for number in tokens_of(work, slot, app.instance.crash):
                await reply.begin_stream(NDJSON)
                head = {"model": work.asked, "created_at": _stamp(app)}
                await reply.chunk(_line({**head, **shape.text(work.piece(number)), "done": False}))
    except Failed:
        # The text of the error is lost here.
        await reply.begin_stream(NDJSON)
        head = {"model": work.asked, "created_at": _stamp(app), **shape.text("", role="")}
        await reply.chunk(_line({**head, "done": True, "done_reason": "error"}))
        await reply.end()
        return
    await reply.begin_stream(NDJSON)
    head = {"model": work.asked, "created_at": _stamp(app), **shape.text("")}
    await reply.chunk(_line({**head, **_done(app, work, started_s)}))
    await reply.end()


def _done(app: Emulator, work: Work, started_s: float) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": "stop",
        "total_duration": _nanoseconds(app.clock.monotonic_s() - started_s),
        "prompt_eval_count": work.prompt_tokens,
        "eval_count": work.tokens,
    }


def _model(name: str, model: EmulatedModel | None) -> dict[str, Any]:
    tagged = f"{name}:latest"
    details: dict[str, Any] = {"format": "gguf"}
    if model is not None:
        details |= {"family": BACKEND, "families": [BACKEND]}
    shown: dict[str, Any] = {
        "name": tagged,
        "model": tagged,
        "size": 0,
        "digest": f"sha256:{hashlib.sha256(name.encode()).hexdigest()}",
        "details": details,
    }
    usecases = () if model is None else model.usecases
    able = [_CAPABILITIES[usecase] for usecase in usecases if usecase in _CAPABILITIES]
    if able:
        shown["capabilities"] = able
    return shown


def _failed(message: str) -> str:
    return f"model inference failed: {message}"


def _line(value: Mapping[str, Any]) -> bytes:
    return f"{json_text(value)}\n".encode()


def _stamp(app: Emulator, later_s: float = 0.0) -> str:
    moment = datetime.fromtimestamp(app.clock.now_s() + later_s, tz=UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S.%f}000Z"


def _nanoseconds(duration_s: float) -> int:
    return int(duration_s * 1e9)
