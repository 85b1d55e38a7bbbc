"""Calls of the emulator with the seconds of its clock that they take."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp

SCALE = 50.0
MODELS = [
    {"name": "a", "footprint_mb": 100, "load_s": 4.0, "parallel": 4, "aliases": ["al"]},
    {"name": "b", "footprint_mb": 100, "load_s": 4.0, "parallel": 4},
    {"name": "c", "footprint_mb": 100, "load_s": 4.0, "parallel": 1},
    {"name": "pinned", "footprint_mb": 100, "load_s": 1.0, "pinned": True},
    {"name": "no-weights", "footprint_mb": 100, "load_s": 1.0, "weights": False},
]


class Timed:
    """An answer with the seconds of the emulator's clock that it took."""

    def __init__(self, status: int, headers: Any, body: Any, elapsed_s: float) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.elapsed_s = elapsed_s


async def ask(
    http: aiohttp.ClientSession, method: str, path: str, body: Any = None, **headers: str
) -> Timed:
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with http.request(method, path, json=body, headers=headers) as answer:
        text = await answer.text()
        parsed = json.loads(text) if text and answer.content_type == "application/json" else text
        return Timed(answer.status, answer.headers, parsed, (loop.time() - started) * SCALE)


async def chat(http: aiohttp.ClientSession, model: str, **extra: Any) -> Timed:
    headers = {"X-Emulator-Service-S": str(extra.pop("service_s", 0.1))}
    body = {"model": model, "messages": [], "max_tokens": 2, **extra}
    return await ask(http, "POST", "/v1/chat/completions", body, **headers)


async def load(http: aiohttp.ClientSession, model: str) -> Timed:
    return await ask(http, "POST", "/backend/load", {"model": model})


async def stop(http: aiohttp.ClientSession, model: str) -> Timed:
    return await ask(http, "POST", "/backend/shutdown", {"model": model})


async def loaded(http: aiohttp.ClientSession) -> list[str]:
    body = (await ask(http, "GET", "/system")).body
    assert body["backends"] == ["emulated"]
    assert {entry["backend"] for entry in body["loaded_models"]} <= {"emulated"}
    return [entry["id"] for entry in body["loaded_models"]]


async def arm(http: aiohttp.ClientSession, **fault: Any) -> None:
    assert (await ask(http, "POST", "/emulator/faults", fault)).status == 200


async def sleep(duration_s: float) -> None:
    await asyncio.sleep(duration_s / SCALE)
