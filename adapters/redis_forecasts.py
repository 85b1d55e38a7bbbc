"""The newest forecasts in a Redis hash, with a stream that says which ones are new."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import redis.asyncio

from adapters.codec import decode_as, encode
from adapters.redis_client import key_for, mapped_errors
from adapters.redis_fence import FENCE_LUA, check_fence, token_argument
from adapters.redis_streams import RedisStream, Reply
from contracts.forecasts import Forecasts, ModelForecast
from contracts.ids import ModelId
from contracts.redis_keys import FORECASTS, FORECASTS_TOKEN, FORECASTS_UPDATES

_MAX_UPDATES = 1000
_MAX_BATCH = 1000
_MODELS_PER_WRITE = 200

_NAMES = msgspec.json.Decoder(list[str])

_PUT_LUA = (
    FENCE_LUA
    + """
if is_fenced_off(KEYS[1], ARGV[1]) then return -1 end
for i = 4, #ARGV, 2 do
  redis.call('HSET', KEYS[2], ARGV[i], ARGV[i + 1])
end
redis.call('XADD', KEYS[3], 'MAXLEN', '~', ARGV[2], '*', 'r', ARGV[3])
return 1
"""
)

_REMOVE_LUA = (
    FENCE_LUA
    + """
if is_fenced_off(KEYS[1], ARGV[1]) then return -1 end
for i = 2, #ARGV do
  redis.call('HDEL', KEYS[2], ARGV[i])
end
return 1
"""
)


class RedisForecastStore:
    """``ForecastStore``. Updates carry names, and their readers fetch the newest forecast.

    So a slow reader gets each model once, and the stream stays small however large forecasts
    are. ``skipped``: forecasts that could not be read.
    """

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._newest = key_for(client, FORECASTS)
        self._token = key_for(client, FORECASTS_TOKEN)
        updates = key_for(client, FORECASTS_UPDATES)
        self._updates = RedisStream(client, updates, max_entries=_MAX_UPDATES)
        self._put = client.register_script(_PUT_LUA)
        self._remove = client.register_script(_REMOVE_LUA)
        self.skipped = 0

    async def put(self, forecasts: tuple[ModelForecast, ...], *, token: int | None = None) -> None:
        for start in range(0, len(forecasts), _MODELS_PER_WRITE):
            batch = forecasts[start : start + _MODELS_PER_WRITE]
            names = msgspec.json.encode([forecast.model for forecast in batch])
            args: list[str | bytes | int] = [token_argument(token), _MAX_UPDATES, names]
            for forecast in batch:
                args += [forecast.model, encode(forecast)]
            with mapped_errors("store forecasts"):
                reply = await self._put(
                    keys=[self._token, self._newest, self._updates.key], args=args
                )
            check_fence(reply, "store forecasts")

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

    async def remove(self, models: tuple[ModelId, ...], *, token: int | None = None) -> None:
        if models or token is not None:
            with mapped_errors("remove forecasts"):
                reply = await self._remove(
                    keys=[self._token, self._newest], args=[token_argument(token), *models]
                )
            check_fence(reply, "remove forecasts")

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
