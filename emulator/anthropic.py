"""Anthropic's dialect: ``POST /v1/messages``."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping
from typing import Any

from emulator.context import Emulator, words
from emulator.errors import send_echo_error
from emulator.http import Reply, Request, json_text
from emulator.openai_stream import EVENT_STREAM
from emulator.resolve import read_inference_body, resolve_model
from emulator.serving import Failed, do, serving
from emulator.spoken import Call, Spoken, flat_tools, speak
from emulator.work import Work, tokens_of

PING_S = 3.0
"""Between two signs of life before the first token."""


async def messages(app: Emulator, request: Request, reply: Reply) -> None:
    """A message; a stream says so before the model is even loaded."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    name = await resolve_model(app, request, reply, body.get("model"), usecase="chat")
    if name is None:
        return
    stamp_request_id(request, reply)
    max_tokens = body.get("max_tokens")
    if not isinstance(max_tokens, int) or max_tokens <= 0:
        await send_echo_error(reply, 400, "max_tokens is required and must be greater than 0")
        return
    work = app.work(
        request,
        name,
        max_tokens=max_tokens,
        prompt_tokens=words(body.get("system")) + words(body.get("messages")),
        spoken=_spoken(body),
    )
    if body.get("stream") is True:
        await _stream(app, reply, work)
    else:
        await _plain(app, reply, work)


def stamp_request_id(request: Request, reply: Reply) -> None:
    """``X-Request-Id``: the caller's, or a new one."""
    reply.add_header("X-Request-Id", request.headers.get("x-request-id") or str(uuid.uuid4()))


async def _plain(app: Emulator, reply: Reply, work: Work) -> None:
    try:
        await do(app, work)
    except Failed as failed:
        await reply.json(500, _error(failed.failure.message))
        return
    await reply.json(
        200,
        {
            "id": f"msg_{uuid.uuid4()}",
            "type": "message",
            "role": "assistant",
            "content": [_block(work)],
            "model": work.asked,
            "stop_reason": _stop_reason(work),
            "usage": {"input_tokens": work.prompt_tokens, "output_tokens": work.tokens},
        },
    )


async def _stream(app: Emulator, reply: Reply, work: Work) -> None:
    await reply.begin_stream(EVENT_STREAM)
    head: dict[str, Any] = {
        "id": f"msg_{uuid.uuid4()}",
        "type": "message",
        "role": "assistant",
        "content": [],
        "model": work.asked,
        "stop_reason": None,
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }
    opening = _event("message_start", {"message": head})
    opening += _event(
        "content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}}
    )
    await reply.chunk(opening.encode())
    pinging = asyncio.get_running_loop().create_task(_ping(app, reply))
    try:
        async with serving(app, work) as slot:
            async for number in tokens_of(work, slot, app.instance.crash):
                if number == 0:
                    pinging.cancel()
                if work.spoken.call is None:
                    delta = {"type": "text_delta", "text": work.piece(number)}
                    said = _event("content_block_delta", {"index": 0, "delta": delta})
                    await reply.chunk(said.encode())
    except Failed as failed:
        pinging.cancel()
        await _fail(reply, failed.failure.message)
        return
    finally:
        pinging.cancel()
    # The empty block of text is closed before a call's own begins.
    closing = _event("content_block_stop", {"index": 0})
    if work.spoken.call is not None:
        closing += _called(work.spoken.call)
    usage = {"input_tokens": 0, "output_tokens": work.tokens}
    delta = {"stop_reason": _stop_reason(work)}
    closing += _event("message_delta", {"delta": delta, "usage": usage})
    await reply.chunk((closing + _event("message_stop", {})).encode())
    await reply.end()


def _spoken(body: Mapping[str, Any]) -> Spoken:
    """What a model answers that keeps to the tools of a message request."""
    choice = body.get("tool_choice")
    choice = choice if isinstance(choice, Mapping) else {}
    tools = [] if choice.get("type") == "none" else flat_tools(body.get("tools"), "input_schema")
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    content = last.get("content") if isinstance(last, Mapping) else None
    blocks = content if isinstance(content, list) else []
    has_result = any(
        isinstance(block, Mapping) and block.get("type") == "tool_result" for block in blocks
    )
    return speak(tools=tools, wanted=choice.get("name"), has_result=has_result)


def _block(work: Work) -> dict[str, Any]:
    call = work.spoken.call
    if call is None:
        return {"type": "text", "text": work.text}
    arguments = json.loads(call.arguments)
    return {"type": "tool_use", "text": "", **_named(call), "input": arguments}


def _called(call: Call) -> str:
    start = {"type": "tool_use", "text": "", **_named(call)}
    delta = {"type": "input_json_delta", "partial_json": call.arguments}
    return (
        _event("content_block_start", {"index": 1, "content_block": start})
        + _event("content_block_delta", {"index": 1, "delta": delta})
        + _event("content_block_stop", {"index": 1})
    )


def _named(call: Call) -> dict[str, str]:
    return {"id": f"toolu_{uuid.uuid4()}_0", "name": call.name}


def _stop_reason(work: Work) -> str:
    return "end_turn" if work.spoken.call is None else "tool_use"


async def _ping(app: Emulator, reply: Reply) -> None:
    """Say every few seconds that the stream is alive, while nothing else is said."""
    while True:
        await app.clock.sleep(PING_S)
        await reply.chunk(b'event: ping\ndata: {"type": "ping"}\n\n')


async def _fail(reply: Reply, message: str) -> None:
    """An error event; no ``message_stop`` follows."""
    await reply.chunk(f"event: error\ndata: {json_text(_error(message))}\n\n".encode())
    await reply.end()


def _event(kind: str, fields: Mapping[str, Any]) -> str:
    return f"event: {kind}\ndata: {json_text({'type': kind, **fields})}\n\n"


def _error(message: str) -> dict[str, Any]:
    error = {"type": "api_error", "message": f"model inference failed: {message}"}
    return {"type": "error", "error": error}
