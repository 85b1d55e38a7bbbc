"""OpenAI's newer dialect: ``POST /v1/responses`` and ``GET /v1/responses/{id}``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from emulator.anthropic import stamp_request_id
from emulator.context import Emulator, words
from emulator.http import Reply, Request, json_text
from emulator.openai import EVENT_STREAM
from emulator.resolve import read_inference_body, resolve_model
from emulator.serving import Failed, do, serving
from emulator.work import WORD, Work, tokens_of


async def create(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/responses``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    name = await resolve_model(app, request, reply, body.get("model"), usecase="chat")
    if name is None:
        return
    stamp_request_id(request, reply)
    work = app.work(
        request,
        name,
        max_tokens=body.get("max_output_tokens"),
        prompt_tokens=words(body.get("input")),
    )
    response = _response(app, work, body)
    if body.get("background") is True:
        # What the real one does with a backend that cannot: accepted, then failed.
        await reply.json(200, {**response, "status": "queued"})
        app.responses.put({**response, "status": "failed", "completed_at": app.created()})
    elif body.get("stream") is True:
        await _stream(app, reply, work, response)
    else:
        await _plain(app, reply, work, response)


async def read(app: Emulator, request: Request, reply: Reply) -> None:
    """``GET /v1/responses/{id}``."""
    stored = app.responses.get(request.params["id"])
    if stored is None:
        identity = request.params["id"]
        error = {"message": f"response not found: {identity}", "param": "id", "type": "not_found"}
        await reply.json(404, {"error": error})
    else:
        await reply.json(200, stored)


async def _plain(app: Emulator, reply: Reply, work: Work, response: dict[str, Any]) -> None:
    try:
        await do(app, work)
    except Failed as failed:
        await reply.json(500, {"error": _error(failed.failure.message)})
        return
    completed = _completed(app, work, response, _message_id(), work.text)
    app.responses.put(completed)
    await reply.json(200, completed)


async def _stream(app: Emulator, reply: Reply, work: Work, response: dict[str, Any]) -> None:
    events = _Events()
    message = _message_id()
    text = WORD * work.tokens
    at = {"output_index": 0, "content_index": 0, "item_id": message}
    opening = _opening(events, response, message, at)  # goes out with what comes first
    try:
        async with serving(app, work) as slot:
            async for number in tokens_of(work, slot, app.instance.crash):
                if number == 0:
                    await reply.begin_stream(EVENT_STREAM)
                    await reply.chunk(opening)
                delta = {**at, "delta": WORD, "logprobs": []}
                await reply.chunk(events.next("response.output_text.delta", delta).encode())
    except Failed as failed:
        if reply.status is None:
            await reply.begin_stream(EVENT_STREAM)
            await reply.chunk(opening)
        await _fail(reply, events, response, failed.failure.message)
        return
    completed = _completed(app, work, response, message, text)
    app.responses.put(completed)
    await reply.begin_stream(EVENT_STREAM)
    await reply.chunk(_closing(events, completed, text, at))
    await reply.end()


class _Events:
    """Numbered events."""

    def __init__(self) -> None:
        self._number = 0

    def next(self, kind: str, fields: Mapping[str, Any]) -> str:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return f"event: {kind}\ndata: {json_text(event)}\n\n"


def _opening(
    events: _Events, response: dict[str, Any], message: str, at: Mapping[str, Any]
) -> bytes:
    item = {**_item(message, "in_progress"), "content": []}
    part = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    text = (
        events.next("response.created", {"response": response})
        + events.next("response.in_progress", {"response": response})
        + events.next("response.output_item.added", {"output_index": 0, "item": item})
        + events.next("response.content_part.added", {**at, "part": part})
    )
    return text.encode()


def _closing(events: _Events, completed: dict[str, Any], text: str, at: Mapping[str, Any]) -> bytes:
    item = completed["output"][0]
    part = item["content"][0]
    closing = (
        events.next("response.output_text.done", {**at, "text": text, "logprobs": []})
        + events.next("response.content_part.done", {**at, "part": part})
        + events.next("response.output_item.done", {"output_index": 0, "item": item})
        + events.next("response.completed", {"response": completed})
        + "data: [DONE]\n\n"
    )
    return closing.encode()


async def _fail(reply: Reply, events: _Events, response: dict[str, Any], message: str) -> None:
    failed = {**response, "status": "failed"}
    text = (
        events.next("error", {"error": _error(message)})
        + events.next("response.failed", {"response": failed})
        + "data: [DONE]\n\n"
    )
    await reply.chunk(text.encode())
    await reply.end()


def _error(message: str) -> dict[str, str]:
    return {"type": "model_error", "message": f"model inference failed: {message}"}


def _message_id() -> str:
    return f"msg_{uuid.uuid4()}"


def _item(message: str, status: str) -> dict[str, Any]:
    return {
        "type": "message",
        "id": message,
        "status": status,
        "role": "assistant",
        "content": [],
        "arguments": "",
        "summary": [],
    }


def _completed(
    app: Emulator, work: Work, response: dict[str, Any], message: str, text: str
) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    usage = {
        "input_tokens": work.prompt_tokens,
        "output_tokens": work.tokens,
        "total_tokens": work.prompt_tokens + work.tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    return {
        **response,
        "completed_at": app.created(),
        "status": "completed",
        "output": [{**_item(message, "completed"), "content": [part]}],
        "usage": usage,
    }


def _response(app: Emulator, work: Work, body: Mapping[str, Any]) -> dict[str, Any]:
    max_output_tokens = body.get("max_output_tokens")
    return {
        "id": f"resp_{uuid.uuid4()}",
        "object": "response",
        "created_at": app.created(),
        "completed_at": None,
        "status": "in_progress",
        "model": work.asked,
        "output": [],
        "error": None,
        "incomplete_details": None,
        "previous_response_id": None,
        "instructions": None,
        "tools": [],
        "tool_choice": "none",
        "parallel_tool_calls": True,
        "max_tool_calls": None,
        "temperature": 1,
        "top_p": 1,
        "presence_penalty": 0,
        "frequency_penalty": 0,
        "top_logprobs": 0,
        "max_output_tokens": max_output_tokens if isinstance(max_output_tokens, int) else None,
        "text": {"format": {"type": "text"}},
        "truncation": "auto",
        "reasoning": None,
        "usage": None,
        "metadata": {},
        "store": body.get("store", True) is not False,
        "background": body.get("background") is True,
        "service_tier": "default",
        "safety_identifier": None,
        "prompt_cache_key": None,
    }
