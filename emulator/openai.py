"""OpenAI's text endpoints: chat, completions, edits."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from emulator.context import Emulator, words
from emulator.errors import send_error
from emulator.failures import Failure
from emulator.http import Reply, Request, json_text
from emulator.resolve import read_inference_body, resolve_model
from emulator.serving import Failed, do, serving
from emulator.work import WORD, Work, tokens_of

EVENT_STREAM = "text/event-stream"


async def chat(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/chat/completions``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    name = await resolve_model(app, request, reply, body.get("model"), usecase="chat")
    if name is None:
        return
    stamp_correlation(request, reply)
    choices = body.get("n") if isinstance(body.get("n"), int) else 1
    count = max(1, min(int(choices or 1), 16))
    work = app.work(
        request,
        name,
        max_tokens=body.get("max_tokens") or body.get("max_completion_tokens"),
        prompt_tokens=words(body.get("messages")),
        share=count,
    )
    if body.get("stream") is True:
        await _stream(app, reply, work, _ChatChunks(app, work, reply.correlation_id), body)
    else:
        await answer_plain(app, reply, work, lambda: _chat_answer(app, work, count), times=count)


async def completions(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/completions`` and ``/v1/engines/{model}/completions``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    name = await resolve_model(app, request, reply, body.get("model"), usecase="completion")
    if name is None:
        return
    stamp_correlation(request, reply)
    prompt = body.get("prompt")
    prompts = len(prompt) if isinstance(prompt, list) and prompt else 1
    work = app.work(
        request,
        name,
        max_tokens=body.get("max_tokens"),
        prompt_tokens=words(prompt),
        share=prompts,
    )
    if body.get("stream") is True:
        await _stream(app, reply, work, _TextChunks(app, work), body)
    else:
        await answer_plain(
            app, reply, work, lambda: _text_answer(app, work, prompts), times=prompts
        )


async def edits(app: Emulator, request: Request, reply: Reply) -> None:
    """``POST /v1/edits``."""
    body = await read_inference_body(request, reply)
    if body is None:
        return
    name = await resolve_model(app, request, reply, body.get("model"), usecase="edit")
    if name is None:
        return
    stamp_correlation(request, reply)
    work = app.work(request, name, prompt_tokens=words(body.get("input")))

    def answer() -> dict[str, Any]:
        choice = {"index": 0, "finish_reason": None, "text": work.text}
        return {**_head(app, "edit", work.asked), "choices": [choice], "usage": usage_of(work)}

    await answer_plain(app, reply, work, answer)


async def answer_plain(
    app: Emulator, reply: Reply, work: Work, answer: Any, *, times: int = 1
) -> None:
    """Do the work, then send the answer, or the error in OpenAI's shape."""
    try:
        await do(app, work, times=times)  # choices are made one after the other
    except Failed as failed:
        await send_failure(reply, failed.failure)
        return
    await reply.json(200, answer())


async def send_failure(reply: Reply, failure: Failure) -> None:
    """A failure in OpenAI's shape, with ``Retry-After`` where LocalAI tells it."""
    if failure.retry_after is not None:
        reply.add_header("Retry-After", str(failure.retry_after))
    await send_error(reply, failure.status, failure.message)


def usage_of(work: Work) -> dict[str, int]:
    """Token counts as OpenAI's dialect has them."""
    return {
        "prompt_tokens": work.prompt_tokens,
        "completion_tokens": work.tokens,
        "total_tokens": work.prompt_tokens + work.tokens,
    }


def stamp_correlation(request: Request, reply: Reply) -> None:
    """``X-Correlation-Id``: the caller's, or a new one."""
    reply.correlation_id = request.headers.get("x-correlation-id") or str(uuid.uuid4())
    reply.add_header("X-Correlation-Id", reply.correlation_id)


def event(value: Mapping[str, Any]) -> str:
    """One event of a stream in OpenAI's dialect."""
    return f"data: {json_text(value)}\n\n"


class _ChatChunks:
    """Events of a chat stream; their id is the correlation id."""

    def __init__(self, app: Emulator, work: Work, identity: str) -> None:
        self._head = {
            "created": app.created(),
            "object": "chat.completion.chunk",
            "id": identity,
            "model": work.asked,
        }
        self._finish = "length" if work.limited else "stop"

    def first(self) -> str:
        return self._chunk(None, {"role": "assistant", "content": None})

    def token(self) -> str:
        return self._chunk(None, {"content": WORD})

    def last(self) -> str:
        return self._chunk(self._finish, {"content": None})

    def usage(self, work: Work) -> str:
        return _usage_event(self._head, work)

    def _chunk(self, finish: str | None, delta: dict[str, str | None]) -> str:
        choice = {"index": 0, "finish_reason": finish, "delta": delta}
        return event({**self._head, "choices": [choice]})


class _TextChunks:
    """Events of a completion stream."""

    def __init__(self, app: Emulator, work: Work) -> None:
        self._head = _head(app, "text_completion", work.asked)

    def first(self) -> str:
        return ""

    def token(self) -> str:
        return self._chunk({"index": 0, "finish_reason": None, "text": WORD})

    def last(self) -> str:
        return self._chunk({"index": 0, "finish_reason": "stop"})

    def usage(self, work: Work) -> str:
        return _usage_event({**self._head, "object": "chat.completion.chunk"}, work)

    def _chunk(self, choice: dict[str, Any]) -> str:
        return event({**self._head, "choices": [choice]})


async def _stream(
    app: Emulator,
    reply: Reply,
    work: Work,
    chunks: _ChatChunks | _TextChunks,
    body: Mapping[str, Any],
) -> None:
    """Nothing goes out before the first token; an error is an event, whenever it comes."""
    options = body.get("stream_options")
    wants_usage = isinstance(options, Mapping) and options.get("include_usage") is True
    token = chunks.token().encode()
    try:
        async with serving(app, work) as slot:
            async for number in tokens_of(work, slot, app.instance.crash):
                if number == 0:
                    await reply.begin_stream(EVENT_STREAM)
                    first = chunks.first()
                    if first:
                        await reply.chunk(first.encode())
                await reply.chunk(token)
    except Failed as failed:
        await _stream_error(reply, failed.failure.message)
        return
    await reply.begin_stream(EVENT_STREAM)
    tail = chunks.last() + (chunks.usage(work) if wants_usage else "") + "data: [DONE]\n\n"
    await reply.chunk(tail.encode())
    await reply.end()


async def _stream_error(reply: Reply, message: str) -> None:
    await reply.begin_stream(EVENT_STREAM)
    error = {"code": "server_error", "message": message, "type": "server_error"}
    await reply.chunk((event({"error": error}) + "data: [DONE]\n\n").encode())
    await reply.end()


def _usage_event(head: Mapping[str, Any], work: Work) -> str:
    named = {key: head[key] for key in ("id", "created", "model", "object")}
    return event({**named, "choices": [], "usage": usage_of(work)})


def _chat_answer(app: Emulator, work: Work, count: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": work.text}
    finish = "length" if work.limited else "stop"
    choices = [{"index": 0, "finish_reason": finish, "message": message}] * count
    return {
        **_head(app, "chat.completion", work.asked),
        "choices": choices,
        "usage": usage_of(work),
    }


def _text_answer(app: Emulator, work: Work, count: int) -> dict[str, Any]:
    choices = [
        {"index": index, "finish_reason": "stop", "text": work.text} for index in range(count)
    ]
    # LocalAI counts nothing on this path.
    usage = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    return {
        **_head(app, "text_completion", work.asked),
        "choices": choices,
        "usage": usage,
    }


def _head(app: Emulator, kind: str, model: str) -> dict[str, Any]:
    return {
        "created": app.created(),
        "object": kind,
        "id": str(uuid.uuid4()),
        "model": model,
    }
