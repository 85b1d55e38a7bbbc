"""``HistoryStore`` in memory, by the same rules as the one in Redis."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from contracts.errors import Transient
from contracts.history import HISTORY_RINGS, HistoryBucket, HistoryPage
from contracts.ids import ModelId
from simulator.memory_stores import Fence


class MemoryHistoryStore:
    """Raises ``fault`` where one is set."""

    def __init__(self) -> None:
        self._rings: dict[ModelId, dict[float, dict[int, HistoryBucket]]] = {}
        self._place: str | None = None
        self._fence = Fence()
        self.fault: Transient | None = None

    async def write(
        self, pages: tuple[HistoryPage, ...], *, place: str, token: int | None = None
    ) -> None:
        self._check()
        self._fence.check(token)
        for page in pages:
            ring = self._rings.setdefault(page.model, {}).setdefault(page.width_s, {})
            for bucket in page.buckets:
                ring[bucket.number % HISTORY_RINGS[page.width_s]] = bucket
        self._place = place

    async def read(self, model: ModelId) -> tuple[HistoryPage, ...]:
        self._check()
        pages = []
        for width_s, slots in HISTORY_RINGS.items():
            found = self._rings.get(model, {}).get(width_s, {}).values()
            newest = max((bucket.number for bucket in found), default=0)
            kept = sorted(
                (bucket for bucket in found if bucket.number > newest - slots),
                key=lambda bucket: bucket.number,
            )
            if kept:
                pages.append(HistoryPage(model=model, width_s=width_s, buckets=tuple(kept)))
        return tuple(pages)

    async def models(self) -> tuple[ModelId, ...]:
        self._check()
        return tuple(sorted(self._rings))

    async def place(self) -> str | None:
        self._check()
        return self._place

    async def remove(self, models: tuple[ModelId, ...], *, token: int | None = None) -> None:
        self._check()
        self._fence.check(token)
        for model in models:
            self._rings.pop(model, None)

    def _check(self) -> None:
        if self.fault is not None:
            raise self.fault
