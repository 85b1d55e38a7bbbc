"""The rings of past counts in Redis: a string per model and width, twenty bytes a bucket.

A bucket lies where its number says, so a write is a ``SETRANGE`` and the ring never grows. Each
holds its own number, by which a reader tells what is left of a turn before.
"""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import struct

import redis.asyncio

from adapters.redis_client import check_replies, key_for, mapped_errors
from contracts.history import HISTORY_RINGS, HistoryBucket, HistoryPage
from contracts.ids import ModelId
from contracts.redis_keys import HISTORY_MODELS, HISTORY_PLACE, history_ring

_BUCKET = struct.Struct("<IIfff")
_MOST_ARRIVALS = 2**32 - 1


class RedisHistoryStore:
    """``HistoryStore``."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._models = key_for(client, HISTORY_MODELS)
        self._place = key_for(client, HISTORY_PLACE)

    async def write(self, pages: tuple[HistoryPage, ...], *, place: str) -> None:
        with mapped_errors("store history"):
            pipeline = self._client.pipeline(transaction=True)
            for page in pages:
                key = self._ring(page.width_s, page.model)
                for bucket in page.buckets:
                    slot = bucket.number % HISTORY_RINGS[page.width_s]
                    pipeline.setrange(key, slot * _BUCKET.size, _packed(bucket))
            if pages:
                pipeline.sadd(self._models, *{page.model for page in pages})
            pipeline.set(self._place, place)
            check_replies(await pipeline.execute(raise_on_error=False))

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
        return tuple(sorted(ModelId(_text(name)) for name in names))

    async def place(self) -> str | None:
        with mapped_errors("read history"):
            stored = await self._client.get(self._place)
        return None if stored is None else _text(stored)

    async def remove(self, models: tuple[ModelId, ...]) -> None:
        if not models:
            return
        with mapped_errors("forget history"):
            pipeline = self._client.pipeline(transaction=True)
            pipeline.srem(self._models, *models)
            pipeline.delete(*(self._ring(width_s, m) for m in models for width_s in HISTORY_RINGS))
            check_replies(await pipeline.execute(raise_on_error=False))

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


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value
