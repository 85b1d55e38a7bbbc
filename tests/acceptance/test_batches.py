"""The Batch API through the whole deployment, with the original's own client."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import AsyncIterator
from typing import Final

import openai
import psutil
import pytest
import pytest_asyncio
from openai.types import Batch

from tests.acceptance.deployment import Deployment, deployed, of_kind

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

CHAT: Final = "/v1/chat/completions"
MODELS = [f"job-{letter}" for letter in "abcde"]
PLACES = [
    {"name": name, "footprint_mb": 4000, "load_s": 2, "tokens_per_s": 2000} for name in MODELS
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def night() -> AsyncIterator[Deployment]:
    """Five models in memory for two."""
    async with deployed(PLACES, capacity_mb=9000) as deployment:
        yield deployment


@pytest_asyncio.fixture(loop_scope="session")
async def client(night: Deployment) -> AsyncIterator[openai.AsyncOpenAI]:
    url = f"{night.stack.control_url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key="x", max_retries=5) as client:
        yield client


def _file(lines: int, models: list[str] = MODELS) -> bytes:
    return b"".join(
        json.dumps(
            {
                "custom_id": f"line-{n}",
                "method": "POST",
                "url": CHAT,
                "body": {
                    "model": models[n % len(models)],
                    "messages": [{"role": "user", "content": f"line {n}"}],
                    "max_tokens": 3,
                },
            }
        ).encode()
        + b"\n"
        for n in range(lines)
    )


async def _start(client: openai.AsyncOpenAI, content: bytes) -> Batch:
    file = await client.files.create(file=("in.jsonl", content), purpose="batch")
    return await client.batches.create(
        input_file_id=file.id, endpoint=CHAT, completion_window="24h"
    )


async def _ended(night: Deployment, client: openai.AsyncOpenAI, batch_id: str) -> Batch:
    async def over() -> bool:
        batch = await client.batches.retrieve(batch_id)
        return batch.status in ("completed", "failed", "expired", "cancelled")

    await night.until(over, "the batch has ended", within_s=180.0)
    return await client.batches.retrieve(batch_id)


async def _ids(client: openai.AsyncOpenAI, file_id: str | None) -> list[str]:
    assert file_id is not None
    content = await client.files.content(file_id)
    return [json.loads(line)["custom_id"] for line in content.text.splitlines()]


async def test_a_batch_over_five_models_needs_hardly_more_loads(
    night: Deployment, client: openai.AsyncOpenAI
):
    start = await night.mark()
    batch = await _ended(night, client, (await _start(client, _file(100))).id)
    assert batch.status == "completed", batch
    assert batch.request_counts is not None
    assert (batch.request_counts.completed, batch.request_counts.failed) == (100, 0)
    assert await _ids(client, batch.output_file_id) == [f"line-{n}" for n in range(100)]
    loads = Counter(e["model"] for e in of_kind(await night.events(start), "load_started"))
    assert sum(loads.values()) <= 7, loads


async def test_a_bad_file_fails_with_its_lines_and_nothing_is_asked(
    night: Deployment, client: openai.AsyncOpenAI
):
    start = await night.mark()
    content = _file(6) + b'{"custom_id": \n' + _file(1)
    batch = await _ended(night, client, (await _start(client, content)).id)
    assert batch.status == "failed"
    assert batch.errors is not None
    assert [(e.code, e.line) for e in batch.errors.data or []] == [
        ("invalid_json_line", 7),
        ("duplicate_custom_id", 8),
    ]
    assert of_kind(await night.events(start), "request_received") == []


async def test_whatever_is_killed_every_line_is_there_once(
    night: Deployment, client: openai.AsyncOpenAI
):
    batch = await _start(client, _file(600, MODELS[:2]))

    async def runs() -> bool:
        now = await client.batches.retrieve(batch.id)
        return now.request_counts is not None and now.request_counts.completed > 20

    await night.until(runs, "lines are being done")
    for part in ("workers", "workers", "gateway", "controller"):
        _kill(night, part)
        await asyncio.sleep(1.0)
    ended = await _ended(night, client, batch.id)
    assert ended.status == "completed", ended
    assert await _ids(client, ended.output_file_id) == [f"line-{n}" for n in range(600)]


async def test_a_cancelled_batch_ends_soon_with_what_it_has(
    night: Deployment, client: openai.AsyncOpenAI
):
    batch = await _start(client, _file(5000, MODELS[:1]))

    async def runs() -> bool:
        now = await client.batches.retrieve(batch.id)
        return now.request_counts is not None and now.request_counts.completed > 5

    await night.until(runs, "lines are being done")
    await client.batches.cancel(batch.id)
    ended = await _ended(night, client, batch.id)
    assert ended.status == "cancelled"
    assert ended.request_counts is not None
    done = ended.request_counts.completed
    assert 5 < done < 5000
    assert len(await _ids(client, ended.output_file_id)) == done


def _kill(night: Deployment, part: str) -> None:
    """Kill a process of this part without warning, jobs of it included."""
    word = {"workers": "--queue batch", "gateway": "api.gateway", "controller": "controller"}[part]
    for child in psutil.Process().children(recursive=True):
        try:
            if word in " ".join(child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
        except psutil.NoSuchProcess:
            continue
