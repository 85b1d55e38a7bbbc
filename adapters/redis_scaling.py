"""The newest answer of each autoscaling target, in a hash."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import redis.asyncio

from adapters.redis_client import key_for, mapped_errors
from contracts.redis_keys import SCALING
from contracts.scaling import Scaling

_DECODER = msgspec.json.Decoder(Scaling)


class RedisScalingStore:
    """``ScalingStore``; an answer that cannot be read counts as none."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._key = key_for(client, SCALING)

    async def put_scaling(self, scaling: Scaling) -> None:
        with mapped_errors("store a scaling"):
            await self._client.hset(self._key, scaling.target, msgspec.json.encode(scaling))

    async def scalings(self) -> Mapping[str, Scaling]:
        with mapped_errors("read scalings"):
            stored = await self._client.hgetall(self._key)
        found: dict[str, Scaling] = {}
        for data in stored.values():
            try:
                scaling = _DECODER.decode(data)
            except msgspec.MsgspecError:
                continue
            found[scaling.target] = scaling
        return found
