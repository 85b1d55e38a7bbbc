"""The lock for loads that gateways order alone, as one Redis key per model."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import redis.asyncio

from adapters.redis_client import key_for, mapped_errors
from contracts.ids import ModelId
from contracts.redis_keys import load_lock

_TAKE = """
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""

_RELEASE = """
if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end
return 0
"""


class RedisLoadLock:
    """``LoadLock`` over Redis. Its times are real, as all of Redis' are."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def take(self, model: ModelId, owner: str, *, hold_s: float) -> bool:
        hold_ms = max(1, int(hold_s * 1000))
        with mapped_errors("take a load lock"):
            taken = await self._client.eval(_TAKE, 1, self._key(model), owner, str(hold_ms))
        return int(taken) == 1

    async def release(self, model: ModelId, owner: str) -> None:
        with mapped_errors("release a load lock"):
            await self._client.eval(_RELEASE, 1, self._key(model), owner)

    def _key(self, model: ModelId) -> str:
        return key_for(self._client, load_lock(model))
