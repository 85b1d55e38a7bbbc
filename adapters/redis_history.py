"""The rings of past counts in Redis: a string per model and width, twenty bytes a bucket.

A bucket lies where its number says, so a write is a ``SETRANGE`` and the ring never grows. Each
holds its own number, by which a reader tells what is left of a turn before.
"""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import struct

import redis.asyncio

from adapters.redis_client import exact_text, key_for, mapped_errors
from adapters.redis_fence import FENCE_LUA, check_fence, token_argument
from contracts.history import HISTORY_RINGS, HistoryBucket, HistoryPage
from contracts.ids import ModelId
from contracts.redis_keys import HISTORY_MODELS, HISTORY_PLACE, HISTORY_TOKEN, history_ring

_BUCKET = struct.Struct("<IIfff")
_MOST_ARRIVALS = 2**32 - 1

_WRITE_LUA = (
    FENCE_LUA
    + """
if is_fenced_off(KEYS[1], ARGV[1]) then return -1 end
redis.call('SET', KEYS[3], ARGV[2])
local at = 3
for k = 4, #KEYS do
  redis.call('SADD', KEYS[2], ARGV[at])
  local last = at + 2 * tonumber(ARGV[at + 1])
  for i = at + 2, last, 2 do
    redis.call('SETRANGE', KEYS[k], ARGV[i], ARGV[i + 1])
  end
  at = last + 2
end
return 1
"""
)
"""After the token and the place come, of each ring, its model, how many buckets, and each of them
behind its offset."""

_REMOVE_LUA = (
    FENCE_LUA
    + """
if is_fenced_off(KEYS[1], ARGV[1]) then return -1 end
for i = 2, #ARGV do
  redis.call('SREM', KEYS[2], ARGV[i])
end
for k = 3, #KEYS do
  redis.call('DEL', KEYS[k])
end
return 1
"""
)


class RedisHistoryStore:
    """``HistoryStore``."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._models = key_for(client, HISTORY_MODELS)
        self._place = key_for(client, HISTORY_PLACE)
        self._token = key_for(client, HISTORY_TOKEN)
        self._write = client.register_script(_WRITE_LUA)
        self._remove = client.register_script(_REMOVE_LUA)

    async def write(
        self, pages: tuple[HistoryPage, ...], *, place: str, token: int | None = None
    ) -> None:
        keys = [self._token, self._models, self._place]
        args: list[str | bytes | int] = [token_argument(token), place]
        for page in pages:
            keys.append(self._ring(page.width_s, page.model))
            args += [page.model, len(page.buckets)]
            for bucket in page.buckets:
                slot = bucket.number % HISTORY_RINGS[page.width_s]
                args += [slot * _BUCKET.size, _packed(bucket)]
        with mapped_errors("store history"):
            reply = await self._write(keys=keys, args=args)
        check_fence(reply, "store history")

    async def read(self, model: ModelId) -> tuple[HistoryPage, ...]:
        with mapped_errors("read history"):
            rings = await self._client.mget(
                [self._ring(width_s, model) for width_s in HISTORY_RINGS]
            )
        pages = (
            HistoryPage(model=model, width_s=width_s, buckets=_unpacked(ring, slots))
            for (width_s, slots), ring in zip(HISTORY_RINGS.items(), rings, strict=True)
            if isinstance(ring, bytes)
        )
        return tuple(page for page in pages if page.buckets)

    async def models(self) -> tuple[ModelId, ...]:
        with mapped_errors("read history"):
            names = await self._client.smembers(self._models)
        return tuple(sorted(ModelId(exact_text(name)) for name in names))

    async def place(self) -> str | None:
        with mapped_errors("read history"):
            stored = await self._client.get(self._place)
        return None if stored is None else exact_text(stored)

    async def remove(self, models: tuple[ModelId, ...], *, token: int | None = None) -> None:
        if not models and token is None:
            return
        rings = [self._ring(width_s, m) for m in models for width_s in HISTORY_RINGS]
        with mapped_errors("forget history"):
            reply = await self._remove(
                keys=[self._token, self._models, *rings], args=[token_argument(token), *models]
            )
        check_fence(reply, "forget history")

    def _ring(self, width_s: float, model: ModelId) -> str:
        return key_for(self._client, history_ring(width_s, model))


def _packed(bucket: HistoryBucket) -> bytes:
    return _BUCKET.pack(
        bucket.number,
        min(bucket.arrivals, _MOST_ARRIVALS),
        bucket.input_tokens,
        bucket.output_tokens,
        bucket.busy_s,
    )


def _unpacked(ring: bytes, slots: int) -> tuple[HistoryBucket, ...]:
    whole = ring[: len(ring) - len(ring) % _BUCKET.size]
    found = [
        HistoryBucket(
            number=number,
            arrivals=arrivals,
            input_tokens=input_tokens,
            output_tokens=output_tokens,
            busy_s=busy_s,
        )
        for number, arrivals, input_tokens, output_tokens, busy_s in _BUCKET.iter_unpack(whole)
        if number
    ]
    newest = max((bucket.number for bucket in found), default=0)
    return tuple(
        sorted(
            (bucket for bucket in found if bucket.number > newest - slots),
            key=lambda bucket: bucket.number,
        )
    )
