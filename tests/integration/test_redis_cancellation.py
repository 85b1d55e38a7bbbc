"""A process that is told to end does end, whatever its Redis client was doing at that moment."""

from __future__ import annotations

import asyncio

import pytest

from adapters.redis_client import connect
from adapters.redis_stores import RedisControlStore
from contracts.ids import ModelId

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("steps", range(12))
async def test_a_task_that_writes_ends_when_it_is_cancelled_at_any_step(redis_url: str, steps: int):
    client = connect(redis_url)
    store = RedisControlStore(client)
    await store.pins()

    async def write_for_ever() -> None:
        while True:
            await store.set_pin(ModelId("m"), pinned=True)

    task = asyncio.create_task(write_for_ever())
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=5)
    assert done, "the cancellation was lost"
    await client.aclose()
