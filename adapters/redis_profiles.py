"""What was measured of models, in a Redis hash, with a sorted set of when each was added to."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Mapping, Sequence

import redis.asyncio

from adapters.codec import decode_as, encode
from adapters.redis_client import check_replies, key_for, mapped_errors, text
from adapters.redis_streams import Reply
from contracts.ids import ModelId
from contracts.profiles import MAX_PROFILES, MeasuredProfile
from contracts.redis_keys import PROFILES, PROFILES_ADDED_TO

_AT_ONCE = 200


class RedisProfileStore:
    """``ProfileStore``. ``skipped``: profiles that could not be read."""

    def __init__(self, client: redis.asyncio.Redis, *, max_models: int = MAX_PROFILES) -> None:
        self._client = client
        self._profiles = key_for(client, PROFILES)
        self._added_to = key_for(client, PROFILES_ADDED_TO)
        self._max_models = max_models
        self.dropped = 0
        self.skipped = 0

    async def put(self, profiles: tuple[MeasuredProfile, ...]) -> None:
        with mapped_errors("store profiles"):
            for start in range(0, len(profiles), _AT_ONCE):
                await self._put(profiles[start : start + _AT_ONCE])

    async def get(self, model: ModelId) -> MeasuredProfile | None:
        with mapped_errors("read a profile"):
            stored = await self._client.hget(self._profiles, model)
        return next(iter(self._decoded([stored])), None)

    async def get_all(self) -> Mapping[ModelId, MeasuredProfile]:
        with mapped_errors("read profiles"):
            stored = await self._client.hgetall(self._profiles)
        return {profile.model: profile for profile in self._decoded([*stored.values()])}

    async def remove(self, models: tuple[ModelId, ...]) -> None:
        if models:
            with mapped_errors("remove profiles"):
                await self._remove(models)

    async def _put(self, profiles: tuple[MeasuredProfile, ...]) -> None:
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.hset(self._profiles, mapping={one.model: encode(one) for one in profiles})
            pipeline.zadd(self._added_to, {one.model: one.at_s for one in profiles})
            pipeline.zrange(self._added_to, 0, -self._max_models - 1)
            replies = await pipeline.execute(raise_on_error=False)
        check_replies(replies)
        oldest = tuple(ModelId(text(name)) for name in replies[-1])
        if oldest:
            await self._remove(oldest)
            self.dropped += len(oldest)

    async def _remove(self, models: Sequence[ModelId]) -> None:
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.hdel(self._profiles, *models)
            pipeline.zrem(self._added_to, *models)
            check_replies(await pipeline.execute(raise_on_error=False))

    def _decoded(self, stored: Sequence[Reply | None]) -> list[MeasuredProfile]:
        present = [data for data in stored if data is not None]
        profiles = [decode_as(data, MeasuredProfile) for data in present]
        self.skipped += profiles.count(None)
        return [profile for profile in profiles if profile is not None]
