"""OpenAI's text endpoints: chat, completions, edits."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import Any

from emulator.context import Emulator, words
from emulator.errors import send_failure
from emulator.http import Reply, Request
from emulator.openai_stream import ChatChunks, TextChunks, stream, usage_of
from emulator.resolve import read_inference_body, resolve_model
from emulator.serving import Failed, do
from emulator.spoken import Spoken, functions_of, schema_of_format, speak
from emulator.work import Work


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
        spoken=_spoken(body),
    )
    if body.get("stream") is True:
        await stream(app, reply, work, ChatChunks(app, work, reply.correlation_id), body)
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
        head = _head(app, "text_completion", work.asked)
        await stream(app, reply, work, TextChunks(head), body)
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


def stamp_correlation(request: Request, reply: Reply) -> None:
    """``X-Correlation-Id``: the caller's, or a new one."""
    reply.correlation_id = request.headers.get("x-correlation-id") or str(uuid.uuid4())
    reply.add_header("X-Correlation-Id", reply.correlation_id)


def _spoken(body: Mapping[str, Any]) -> Spoken:
    """What a model answers that keeps to the tools and the format of a chat request."""
    choice = body.get("tool_choice", "auto")
    tools = [] if choice == "none" else functions_of(body.get("tools"))
    function = choice.get("function") if isinstance(choice, Mapping) else None
    messages = body.get("messages")
    last = messages[-1] if isinstance(messages, list) and messages else None
    return speak(
        tools=tools,
        wanted=function.get("name") if isinstance(function, Mapping) else None,
        schema=schema_of_format(body.get("response_format")),
        has_result=isinstance(last, Mapping) and last.get("role") == "tool",
    )


def _chat_answer(app: Emulator, work: Work, count: int) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": work.text}
    call = work.spoken.call
    finish = "length" if work.limited and work.spoken.text is None else "stop"
    if call is not None:
        finish = "tool_calls"
        function = {"name": call.name, "arguments": call.arguments}
        identity = str(uuid.uuid4())
        message["tool_calls"] = [
            {"index": 0, "id": identity, "type": "function", "function": function}
        ]
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
