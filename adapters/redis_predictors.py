"""What predictors tell of themselves, in one small hash."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import msgspec
import redis.asyncio

from adapters.redis_client import key_for, mapped_errors, text
from contracts.predictors import FORGOTTEN_AFTER_S, MAX_PREDICTORS, PredictorBeat
from contracts.redis_keys import PREDICTORS

_DECODER = msgspec.json.Decoder(PredictorBeat)


class RedisPredictorRoster:
    """``PredictorRoster``. ``skipped``: records that could not be read."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._key = key_for(client, PREDICTORS)
        self.skipped = 0

    async def beat(self, beat: PredictorBeat) -> None:
        with mapped_errors("tell of a predictor"):
            await self._client.hset(self._key, beat.name, msgspec.json.encode(beat))
        beats, odd = await self._read()
        known = sorted(beats, key=lambda other: other.at_s, reverse=True)
        gone = [
            other.name
            for number, other in enumerate(known)
            if number >= MAX_PREDICTORS or beat.at_s - other.at_s > FORGOTTEN_AFTER_S
        ]
        # What another release wrote may be read by its own kind, as long as there is room.
        gone += odd[max(0, MAX_PREDICTORS - len(known)) :]
        if gone:
            with mapped_errors("forget predictors"):
                await self._client.hdel(self._key, *gone)

    async def leave(self, name: str) -> None:
        with mapped_errors("forget a predictor"):
            await self._client.hdel(self._key, name)

    async def all(self) -> tuple[PredictorBeat, ...]:
        beats, _ = await self._read()
        return tuple(sorted(beats, key=lambda beat: beat.name))

    async def _read(self) -> tuple[list[PredictorBeat], list[str]]:
        """What can be read, and the names of those of which it cannot."""
        with mapped_errors("read predictors"):
            stored = await self._client.hgetall(self._key)
        found, odd = [], []
        for name, data in stored.items():
            try:
                found.append(_DECODER.decode(data))
            except msgspec.MsgspecError:
                self.skipped += 1
                odd.append(text(name))
        return found, odd
