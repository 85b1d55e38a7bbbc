"""``Trimmable``: in memory and over a stream, the same entries go."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

import pytest

from adapters.redis_retention import RedisTrimmable
from contracts.ports import Trimmable
from simulator.memory_jobs import MemoryTrimmable

KEY, INDEX = "headstart:log", "headstart:log:index"
Make = Callable[[tuple[float, ...]], Awaitable[tuple[Trimmable, Callable[[], Awaitable[int]]]]]


@pytest.fixture
async def make(backend):
    """A log with entries of the given ages, oldest first, and a way to count what is left."""
    if backend.client is None:

        async def in_memory(ages_s: tuple[float, ...]):
            log = MemoryTrimmable(ages_s)

            async def left() -> int:
                return len(log.ages_s)

            return log, left

        return in_memory
    client = backend.client
    key, index = backend.key(KEY), backend.key(INDEX)

    async def in_redis(ages_s: tuple[float, ...]):
        for number, age_s in enumerate(ages_s, 1):
            at_ms = int((time.time() - age_s) * 1000)
            await client.xadd(key, {"r": b"x"}, id=f"{at_ms}-{number}")
            await client.zadd(index, {f"entry-{number}": at_ms})

        async def left() -> int:
            assert await client.zcard(index) == await client.xlen(key)
            return int(await client.xlen(key))

        return RedisTrimmable(client, KEY, index_key=INDEX), left

    return in_redis


@pytest.mark.parametrize(
    ("max_age_s", "max_entries", "gone"),
    [(3600.0, 100, 2), (3600.0, 2, 3), (1e9, 5, 0), (0.5, 100, 5), (1e9, 0, 5)],
)
async def test_what_is_too_old_or_too_much_goes(
    make: Make, max_age_s: float, max_entries: int, gone: int
):
    log, left = await make((9000.0, 8000.0, 30.0, 20.0, 10.0))
    assert await log.trim(max_age_s=max_age_s, max_entries=max_entries) == gone
    assert await left() == 5 - gone
    assert await log.trim(max_age_s=max_age_s, max_entries=max_entries) == 0


async def test_an_empty_log_has_nothing_to_trim(make: Make):
    log, left = await make(())
    assert await log.trim(max_age_s=1.0, max_entries=1) == 0
    assert await left() == 0
