"""The newest answer of each autoscaling target, in a hash."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import redis.asyncio

from adapters.redis_client import KEY_PREFIX, mapped_errors
from contracts.scaling import Scaling

_KEY = KEY_PREFIX + "scaling"
_DECODER = msgspec.json.Decoder(Scaling)


class RedisScalingStore:
    """``ScalingStore``; an answer that cannot be read counts as none."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client

    async def put_scaling(self, scaling: Scaling) -> None:
        with mapped_errors("store a scaling"):
            await self._client.hset(_KEY, scaling.target, msgspec.json.encode(scaling))

    async def scalings(self) -> Mapping[str, Scaling]:
        with mapped_errors("read scalings"):
            stored = await self._client.hgetall(_KEY)
        found: dict[str, Scaling] = {}
        for data in stored.values():
            try:
                scaling = _DECODER.decode(data)
            except msgspec.MsgspecError:
                continue
            found[scaling.target] = scaling
        return found
