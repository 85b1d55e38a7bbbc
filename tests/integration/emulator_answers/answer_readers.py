"""Models of every kind, and how a test asks them and reads what comes off the wire."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from typing import Any

import aiohttp

from tests.emulator_server import RunningEmulator

MODELS = [
    {"name": "small-chat", "footprint_mb": 64, "load_s": 2.0, "aliases": ["chat"]},
    {"name": "slow-load", "footprint_mb": 32, "load_s": 4.0, "tokens_per_s": 20},
    {"name": "org/named", "footprint_mb": 8, "load_s": 0.1},
    {"name": "off", "footprint_mb": 8, "load_s": 0.1, "disabled": True},
    {"name": "wordy", "footprint_mb": 8, "load_s": 0.1, "keeps_format": False},
    {"name": "tiny-embed", "kind": "embedding", "footprint_mb": 16, "load_s": 0.5},
    {"name": "voice", "kind": "speech", "footprint_mb": 16, "load_s": 0.5},
    {"name": "ears", "kind": "transcription", "footprint_mb": 16, "load_s": 0.5},
    {"name": "painter", "kind": "image", "footprint_mb": 16, "load_s": 0.5},
    {"name": "judge", "kind": "rerank", "footprint_mb": 16, "load_s": 0.5},
    {"name": "gate", "kind": "vad", "footprint_mb": 16, "load_s": 0.5},
]
HI = [{"role": "user", "content": "hi there friend"}]


async def post(
    http: aiohttp.ClientSession, path: str, body: Any, **headers: str
) -> tuple[int, Mapping[str, str], Any]:
    async with http.post(path, json=body, headers=headers) as answer:
        return answer.status, answer.headers, await answer.json(content_type=None)


async def get(http: aiohttp.ClientSession, path: str, **headers: str) -> tuple[int, Any]:
    async with http.get(path, headers=headers) as answer:
        return answer.status, await answer.json(content_type=None)


def wire(emulator: RunningEmulator, path: str, body: Any) -> bytes:
    """Everything that comes off the socket for one request, until it closes or ends."""
    data = json.dumps(body).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(data)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", emulator.port()), timeout=20.0) as connection:
        connection.sendall(head.encode() + data)
        got = b""
        while chunk := connection.recv(65536):
            got += chunk
    return got


def unchunked(body: bytes) -> str:
    """The text of a body in chunks."""
    whole = b""
    while body:
        size, _, rest = body.partition(b"\r\n")
        length = int(size, 16)
        whole += rest[:length]
        assert rest[length : length + 2] == b"\r\n"
        body = rest[length + 2 :]
    return whole.decode()


def events_of(stream: str) -> list[Any]:
    """Payloads of a stream in OpenAI's framing, ``[DONE]`` left out."""
    blocks = stream.split("\n\n")
    assert blocks[-1] == ""
    assert blocks[-2] == "data: [DONE]"
    return [json.loads(block.removeprefix("data: ")) for block in blocks[:-2]]
