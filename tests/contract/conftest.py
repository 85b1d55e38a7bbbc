"""Each port once in memory and once on the real server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import redis.asyncio

from adapters.redis_client import connect


@dataclass(frozen=True)
class Backend:
    """Which implementation a test runs against; ``client`` is None for the in-memory one."""

    client: redis.asyncio.Redis | None


@pytest.fixture(params=["memory", "redis"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    if request.param == "memory":
        yield Backend(None)
        return
    client = connect(request.getfixturevalue("redis_url"))
    yield Backend(client)
    await client.aclose()
