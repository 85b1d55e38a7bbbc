"""Each port once in memory, once on the real server, and once on a cluster of three."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import redis.asyncio

from adapters.redis_client import connect, key_for


@dataclass(frozen=True)
class Backend:
    """Which implementation a test runs against; ``client`` is None for the in-memory one."""

    client: redis.asyncio.Redis | None

    def key(self, name: str) -> str:
        """A key of ours as it is called there."""
        assert self.client is not None
        return key_for(self.client, name)


@pytest.fixture(params=["memory", "redis", "cluster"])
async def backend(request: pytest.FixtureRequest) -> AsyncIterator[Backend]:
    if request.param == "memory":
        yield Backend(None)
        return
    url = (
        request.getfixturevalue("redis_cluster").url
        if request.param == "cluster"
        else request.getfixturevalue("redis_url")
    )
    client = connect(url)
    yield Backend(client)
    await client.aclose()
