"""Streams that LocalAI answers with in a test, word by word, and what the gateway told of them."""

from __future__ import annotations

import json

CHAT = "/v1/chat/completions"
ASK = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
DONE = b"data: [DONE]\n\n"
ZEROS = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
USAGE = {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


def word(text: str, **more: object) -> bytes:
    return said({"choices": [{"index": 0, "delta": {"content": text}, **more}]})


def said(document: object, *, name: str = "") -> bytes:
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(document)}\n\n".encode()


def streams(kit, *pieces: bytes, end: bytes = b"0\r\n\r\n", head: bytes | None = None) -> None:
    """LocalAI answers each request with these pieces, one chunk each."""

    async def script(seen, writer):
        writer.write(head or kit.event_stream_head)
        for piece in pieces:
            writer.write(kit.chunk(piece))
            await writer.drain()
        writer.write(end)

    kit.localai.script = script


async def told(gateway, kind):
    return [event for event in await gateway.told() if isinstance(event, kind)]


def message_events() -> list[bytes]:
    usage = {"input_tokens": 11, "output_tokens": 1}
    start = {"type": "message_start", "message": {"model": "c", "usage": usage}}
    text = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "x"}}
    last = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}}
    return [
        said(start, name="message_start"),
        said({"type": "ping"}, name="ping"),
        said(text, name="content_block_delta"),
        said(last, name="message_delta"),
        said({"type": "message_stop"}, name="message_stop"),
    ]
