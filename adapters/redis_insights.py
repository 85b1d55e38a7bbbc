"""What maintenance has found out, in Redis: a hash of backtests and one of profiles."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import redis.asyncio

from adapters.redis_client import KEY_PREFIX, check_replies, mapped_errors
from contracts.ids import ModelId
from contracts.insights import MAX_PROFILES, MAX_TABLES, BacktestReport, MeasuredProfile

_BACKTESTS = KEY_PREFIX + "backtests"
_PROFILES = KEY_PREFIX + "profiles"
_REPORT = msgspec.json.Decoder(BacktestReport)
_ALL_PROFILES = msgspec.json.Decoder(tuple[MeasuredProfile, ...])


class RedisInsightStore:
    """``InsightStore``. ``skipped``: records that could not be read."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self.skipped = 0

    async def put_backtest(self, report: BacktestReport) -> None:
        with mapped_errors("store a backtest"):
            kept = await self._read()
            old = sorted((r for r in kept if r.workload != report.workload), key=_age, reverse=True)
            async with self._client.pipeline(transaction=True) as pipeline:
                pipeline.hset(_BACKTESTS, report.workload, msgspec.json.encode(report))
                for gone in old[MAX_TABLES - 1 :]:
                    pipeline.hdel(_BACKTESTS, gone.workload)
                check_replies(await pipeline.execute(raise_on_error=False))

    async def backtests(self) -> tuple[BacktestReport, ...]:
        with mapped_errors("read backtests"):
            return tuple(sorted(await self._read(), key=_age, reverse=True))

    async def put_profiles(self, profiles: Mapping[ModelId, MeasuredProfile]) -> None:
        some = tuple(profiles.values())[:MAX_PROFILES]
        with mapped_errors("store profiles"):
            await self._client.set(_PROFILES, msgspec.json.encode(some))

    async def profiles(self) -> Mapping[ModelId, MeasuredProfile]:
        with mapped_errors("read profiles"):
            data = await self._client.get(_PROFILES)
        try:
            found = _ALL_PROFILES.decode(data or b"[]")
        except msgspec.MsgspecError:
            self.skipped += 1
            return {}
        return {profile.model: profile for profile in found}

    async def _read(self) -> list[BacktestReport]:
        found = []
        for data in (await self._client.hgetall(_BACKTESTS)).values():
            try:
                found.append(_REPORT.decode(data))
            except msgspec.MsgspecError:
                self.skipped += 1
        return found


def _age(report: BacktestReport) -> tuple[float, str]:
    return (report.made_at_s, report.workload)
