"""What maintenance has found out, in Redis: a hash of the newest backtests."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import msgspec
import redis.asyncio

from adapters.redis_client import check_replies, key_for, mapped_errors
from contracts.insights import MAX_TABLES, BacktestReport
from contracts.redis_keys import BACKTESTS

_REPORT = msgspec.json.Decoder(BacktestReport)


class RedisInsightStore:
    """``InsightStore``. ``skipped``: records that could not be read."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._key = key_for(client, BACKTESTS)
        self.skipped = 0

    async def put_backtest(self, report: BacktestReport) -> None:
        with mapped_errors("store a backtest"):
            kept = await self._read()
            old = sorted((r for r in kept if r.workload != report.workload), key=_age, reverse=True)
            async with self._client.pipeline(transaction=True) as pipeline:
                pipeline.hset(self._key, report.workload, msgspec.json.encode(report))
                for gone in old[MAX_TABLES - 1 :]:
                    pipeline.hdel(self._key, gone.workload)
                check_replies(await pipeline.execute(raise_on_error=False))

    async def backtests(self) -> tuple[BacktestReport, ...]:
        with mapped_errors("read backtests"):
            return tuple(sorted(await self._read(), key=_age, reverse=True))

    async def _read(self) -> list[BacktestReport]:
        found = []
        for data in (await self._client.hgetall(self._key)).values():
            try:
                found.append(_REPORT.decode(data))
            except msgspec.MsgspecError:
                self.skipped += 1
        return found


def _age(report: BacktestReport) -> tuple[float, str]:
    return (report.made_at_s, report.workload)
