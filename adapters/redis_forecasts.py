"""The newest forecasts in a Redis hash, with a stream that says which ones are new."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import redis.asyncio

from adapters.codec import decode_as, encode
from adapters.redis_client import check_replies, key_for, mapped_errors
from adapters.redis_streams import FIELD, RedisStream, Reply
from contracts.forecasts import Forecasts, ModelForecast
from contracts.ids import ModelId
from contracts.redis_keys import FORECASTS, FORECASTS_UPDATES

_MAX_UPDATES = 1000
_MAX_BATCH = 1000
_MODELS_PER_WRITE = 200

_NAMES = msgspec.json.Decoder(list[str])


class RedisForecastStore:
    """``ForecastStore``. Updates carry names, and their readers fetch the newest forecast.

    So a slow reader gets each model once, and the stream stays small however large forecasts
    are. ``skipped``: forecasts that could not be read.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._newest = key_for(client, FORECASTS)
        self._updates_key = key_for(client, FORECASTS_UPDATES)
        self._updates = RedisStream(client, self._updates_key, max_entries=_MAX_UPDATES)
        self.skipped = 0

    async def put(self, forecasts: tuple[ModelForecast, ...]) -> None:
        with mapped_errors("store forecasts"):
            for start in range(0, len(forecasts), _MODELS_PER_WRITE):
                batch = forecasts[start : start + _MODELS_PER_WRITE]
                await self._put(batch)

    async def get_all(self) -> Forecasts:
        with mapped_errors("read forecasts"):
            stored = await self._client.hgetall(self._newest)
        return {forecast.model: forecast for forecast in self._decoded([*stored.values()])}

    async def get(self, model: ModelId) -> ModelForecast | None:
        with mapped_errors("read a forecast"):
            stored = await self._client.hget(self._newest, model)
        return next(iter(self._decoded([stored])), None)

    async def updates(self, after: str, *, block_s: float) -> tuple[str, tuple[ModelForecast, ...]]:
        with mapped_errors("read new forecasts"):
            if after == "$":
                after = await self._updates.last_id()
            found = await self._updates.read(after, count=_MAX_BATCH, block_s=block_s)
            names = list(dict.fromkeys(name for _, data in found for name in self._names(data)))
            stored = await self._client.hmget(self._newest, names) if names else []
        return found[-1][0] if found else after, tuple(self._decoded(stored))

    async def remove(self, models: tuple[ModelId, ...]) -> None:
        if models:
            with mapped_errors("remove forecasts"):
                await self._client.hdel(self._newest, *models)

    async def _put(self, batch: tuple[ModelForecast, ...]) -> None:
        names = msgspec.json.encode([forecast.model for forecast in batch])
        async with self._client.pipeline(transaction=True) as pipeline:
            pipeline.hset(
                self._newest, mapping={forecast.model: encode(forecast) for forecast in batch}
            )
            pipeline.xadd(self._updates_key, {FIELD: names}, maxlen=_MAX_UPDATES, approximate=True)
            check_replies(await pipeline.execute(raise_on_error=False))

    def _names(self, data: Reply | None) -> list[str]:
        try:
            return _NAMES.decode(data or b"[]")
        except msgspec.MsgspecError:
            self.skipped += 1
            return []

    def _decoded(self, stored: Sequence[Reply | None]) -> list[ModelForecast]:
        present = [data for data in stored if data is not None]
        forecasts = [decode_as(data, ModelForecast) for data in present]
        self.skipped += forecasts.count(None)
        return [forecast for forecast in forecasts if forecast is not None]
