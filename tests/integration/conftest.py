"""What many of these tests ask through: a client of HTTP, clients of Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import aiohttp
import pytest
import redis.asyncio

from adapters.redis_client import connect


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
async def make_client() -> AsyncIterator[Callable[[str], redis.asyncio.Redis]]:
    """Makes clients that are closed when the test is over."""
    clients: list[redis.asyncio.Redis] = []

    def make(url: str) -> redis.asyncio.Redis:
        clients.append(connect(url))
        return clients[-1]

    yield make
    for client in clients:
        await client.aclose()
