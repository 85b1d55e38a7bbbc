"""In-memory stores of what maintenance has found out."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from contracts.insights import MAX_TABLES, BacktestReport
from simulator.memory_streams import Faulty


class MemoryInsightStore(Faulty):
    """``InsightStore`` in memory."""

    def __init__(self) -> None:
        self._reports: dict[str, BacktestReport] = {}

    async def put_backtest(self, report: BacktestReport) -> None:
        self._check()
        others = [old for old in self._newest() if old.workload != report.workload]
        kept = (report, *others[: MAX_TABLES - 1])
        self._reports = {one.workload: one for one in kept}

    async def backtests(self) -> tuple[BacktestReport, ...]:
        self._check()
        return self._newest()

    def _newest(self) -> tuple[BacktestReport, ...]:
        ordered = sorted(self._reports.values(), key=lambda r: (r.made_at_s, r.workload))
        return tuple(reversed(ordered))


class MemoryChampionStore(Faulty):
    """``ChampionStore`` in memory."""

    def __init__(self, key: bytes = b"k" * 32) -> None:
        self._key = key
        self._snapshot: bytes | None = None

    async def get(self) -> bytes | None:
        self._check()
        return self._snapshot

    async def put(self, snapshot: bytes) -> None:
        self._check()
        self._snapshot = snapshot

    async def key(self) -> bytes:
        self._check()
        return self._key
