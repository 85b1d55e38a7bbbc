"""Streams in OpenAI's chat and completions dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emulator.context import Emulator
from emulator.errors import send_failure
from emulator.http import Reply, json_text
from emulator.serving import Failed, serving
from emulator.spoken import Call
from emulator.work import Work, tokens_of

EVENT_STREAM = "text/event-stream"


class ChatChunks:
    """Events of a chat stream; their id is the correlation id."""

    def __init__(self, app: Emulator, work: Work, identity: str) -> None:
        self._head = {
            "created": app.created(),
            "object": "chat.completion.chunk",
            "id": identity,
            "model": work.asked,
        }
        self._call = work.spoken.call
        self._finish = "length" if work.limited else "stop"
        if work.spoken.text is not None:
            self._finish = "stop"

    def first(self) -> str:
        """Said before the first token."""
        if self._call is not None:
            return ""
        return self._chunk(None, {"role": "assistant", "content": None})

    def token(self, text: str) -> str:
        """One token; nothing while a call is made, which is only read at its end."""
        return "" if self._call is not None else self._chunk(None, {"content": text})

    def last(self) -> str:
        """Said after the last token."""
        if self._call is None:
            return self._chunk(self._finish, {"content": None})
        return self._called(self._call) + self._chunk("tool_calls", {"content": None})

    def usage(self, work: Work) -> str:
        """The counts, where they were asked for."""
        return _usage_event(self._head, work)

    def _called(self, call: Call) -> str:
        identity = f"{self._head['id']}-0"
        named = {"index": 0, "id": identity, "type": "function"}
        parts = ({"name": call.name, "arguments": ""}, {"arguments": call.arguments})
        return "".join(
            self._chunk(
                None,
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{**named, "function": part}],
                },
            )
            for part in parts
        )

    def _chunk(self, finish: str | None, delta: Mapping[str, Any]) -> str:
        choice = {"index": 0, "finish_reason": finish, "delta": delta}
        return event({**self._head, "choices": [choice]})


class TextChunks:
    """Events of a completion stream."""

    def __init__(self, head: Mapping[str, Any]) -> None:
        self._head = head

    def first(self) -> str:
        """Said before the first token: nothing."""
        return ""

    def token(self, text: str) -> str:
        """One token."""
        return self._chunk({"index": 0, "finish_reason": None, "text": text})

    def last(self) -> str:
        """Said after the last token."""
        return self._chunk({"index": 0, "finish_reason": "stop"})

    def usage(self, work: Work) -> str:
        """The counts, where they were asked for."""
        return _usage_event({**self._head, "object": "chat.completion.chunk"}, work)

    def _chunk(self, choice: dict[str, Any]) -> str:
        return event({**self._head, "choices": [choice]})


async def stream(
    app: Emulator,
    reply: Reply,
    work: Work,
    chunks: ChatChunks | TextChunks,
    body: Mapping[str, Any],
) -> None:
    """Nothing goes out before the first token; an error is an event, whenever it comes."""
    options = body.get("stream_options")
    wants_usage = isinstance(options, Mapping) and options.get("include_usage") is True
    try:
        async with serving(app, work) as slot:
            async for number in tokens_of(work, slot, app.instance.crash):
                said = chunks.token(work.piece(number))
                if number == 0:
                    await reply.begin_stream(EVENT_STREAM)
                    await _say(reply, chunks.first())
                await _say(reply, said)
    except Failed as failed:
        if failed.failure.kind:
            await send_failure(reply, failed.failure)
        else:
            await _stream_error(reply, failed.failure.message)
        return
    await reply.begin_stream(EVENT_STREAM)
    tail = chunks.last() + (chunks.usage(work) if wants_usage else "") + "data: [DONE]\n\n"
    await reply.chunk(tail.encode())
    await reply.end()


def event(value: Mapping[str, Any]) -> str:
    """One event of a stream in OpenAI's dialect."""
    return f"data: {json_text(value)}\n\n"


def usage_of(work: Work) -> dict[str, int]:
    """Token counts as OpenAI's dialect has them."""
    return {
        "prompt_tokens": work.prompt_tokens,
        "completion_tokens": work.tokens,
        "total_tokens": work.prompt_tokens + work.tokens,
    }


async def _say(reply: Reply, text: str) -> None:
    if text:
        await reply.chunk(text.encode())


async def _stream_error(reply: Reply, message: str) -> None:
    await reply.begin_stream(EVENT_STREAM)
    error = {"code": "server_error", "message": message, "type": "server_error"}
    await reply.chunk((event({"error": error}) + "data: [DONE]\n\n").encode())
    await reply.end()


def _usage_event(head: Mapping[str, Any], work: Work) -> str:
    named = {key: head[key] for key in ("id", "created", "model", "object")}
    return event({**named, "choices": [], "usage": usage_of(work)})
