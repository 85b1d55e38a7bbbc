"""OpenAI's newer dialect: ``POST /v1/responses`` and ``GET /v1/responses/{id}``."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from emulator.anthropic import stamp_request_id
from emulator.context import Emulator, words
from emulator.http import Reply, Request, json_text
from emulator.openai_stream import EVENT_STREAM
from emulator.resolve import read_inference_body, resolve_model
from emulator.serving import Failed, do, serving
from emulator.spoken import WORD, Call, Spoken, flat_tools, schema_of_format, speak
from emulator.work import Work, tokens_of


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
        spoken=_spoken(body),
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
    call = work.spoken.call
    item = _said(_message_id(), work.text) if call is None else _called(call, "completed")
    completed = _completed(app, work, response, item)
    app.responses.put(completed)
    await reply.json(200, completed)


async def _stream(app: Emulator, reply: Reply, work: Work, response: dict[str, Any]) -> None:
    events = _Events()
    message = _message_id()
    call = work.spoken.call
    text = WORD * work.tokens if work.spoken.text is None else work.spoken.text
    at = {"output_index": 0, "content_index": 0, "item_id": message}
    opening = _opening(events, response)  # goes out with what comes first
    if call is None:
        opening += _begun(events, message, at)
    try:
        async with serving(app, work) as slot:
            async for number in tokens_of(work, slot, app.instance.crash):
                if number == 0:
                    await reply.begin_stream(EVENT_STREAM)
                    await reply.chunk(opening)
                if call is None:
                    delta = {**at, "delta": work.piece(number), "logprobs": []}
                    await reply.chunk(events.next("response.output_text.delta", delta).encode())
    except Failed as failed:
        if reply.status is None:
            await reply.begin_stream(EVENT_STREAM)
            await reply.chunk(opening)
        await _fail(reply, events, response, failed.failure.message)
        return
    item = _said(message, text) if call is None else _called(call, "completed")
    completed = _completed(app, work, response, item)
    app.responses.put(completed)
    await reply.begin_stream(EVENT_STREAM)
    closing = _ended(events, item, at) if call is None else _call_made(events, item)
    closing += events.next("response.completed", {"response": completed}) + "data: [DONE]\n\n"
    await reply.chunk(closing.encode())
    await reply.end()


def _spoken(body: Mapping[str, Any]) -> Spoken:
    """What a model answers that keeps to the tools and the format of the request."""
    choice = body.get("tool_choice", "auto")
    given = body.get("input")
    last = given[-1] if isinstance(given, list) and given else None
    text = body.get("text")
    return speak(
        tools=[] if choice == "none" else flat_tools(body.get("tools"), "parameters"),
        wanted=choice.get("name") if isinstance(choice, Mapping) else None,
        schema=schema_of_format(text.get("format") if isinstance(text, Mapping) else None),
        has_result=isinstance(last, Mapping) and last.get("type") == "function_call_output",
    )


class _Events:
    """Numbered events."""

    def __init__(self) -> None:
        self._number = 0

    def next(self, kind: str, fields: Mapping[str, Any]) -> str:
        event = {"type": kind, "sequence_number": self._number, **fields}
        self._number += 1
        return f"event: {kind}\ndata: {json_text(event)}\n\n"


def _opening(events: _Events, response: dict[str, Any]) -> bytes:
    text = events.next("response.created", {"response": response})
    text += events.next("response.in_progress", {"response": response})
    return text.encode()


def _begun(events: _Events, message: str, at: Mapping[str, Any]) -> bytes:
    """A message begins."""
    item = _item(message, "in_progress")
    part = _part("")
    text = events.next("response.output_item.added", {"output_index": 0, "item": item})
    text += events.next("response.content_part.added", {**at, "part": part})
    return text.encode()


def _ended(events: _Events, item: dict[str, Any], at: Mapping[str, Any]) -> str:
    """A message ends."""
    part = item["content"][0]
    return (
        events.next("response.output_text.done", {**at, "text": part["text"], "logprobs": []})
        + events.next("response.content_part.done", {**at, "part": part})
        + events.next("response.output_item.done", {"output_index": 0, "item": item})
    )


def _call_made(events: _Events, item: dict[str, Any]) -> str:
    """A tool is called: its arguments come in one piece."""
    at = {"output_index": 0, "item_id": item["id"]}
    begun = {**item, "status": "in_progress", "arguments": ""}
    arguments = item["arguments"]
    return (
        events.next("response.output_item.added", {"output_index": 0, "item": begun})
        + events.next("response.function_call_arguments.delta", {**at, "delta": arguments})
        + events.next("response.function_call_arguments.done", {**at, "arguments": arguments})
        + events.next("response.output_item.done", {"output_index": 0, "item": item})
    )


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


def _said(message: str, text: str) -> dict[str, Any]:
    return {**_item(message, "completed"), "content": [_part(text)]}


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _called(call: Call, status: str) -> dict[str, Any]:
    identity = f"fc_{uuid.uuid4()}"
    return {
        "type": "function_call",
        "id": identity,
        "status": status,
        "call_id": identity,
        "name": call.name,
        "arguments": call.arguments,
        "summary": [],
    }


def _completed(
    app: Emulator, work: Work, response: dict[str, Any], item: dict[str, Any]
) -> dict[str, Any]:
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
        "output": [item],
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
