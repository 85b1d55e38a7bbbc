"""The event log over a Redis stream."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import time
from collections.abc import Sequence

import redis.asyncio

from adapters.codec import EVENT_TYPES, decode_as, encode
from adapters.redis_client import key_for, mapped_errors
from adapters.redis_streams import RawEntry, RedisStream
from contracts.events import AnyEvent
from contracts.ports import Entry
from contracts.redis_keys import EVENTS

_MAX_COUNTED_IDS = 10_000


class RedisEventLog:
    """``EventLog`` over one Redis stream."""

    def __init__(
        self,
        client: redis.asyncio.Redis,
        *,
        key: str = EVENTS,
        max_entries: int = 200_000,
    ) -> None:
        self._stream = RedisStream(
            client, key_for(client, key), max_entries=max_entries, is_kept=True
        )
        self._skipped = 0
        self._skipped_ids: dict[str, None] = {}

    async def append(self, events: tuple[AnyEvent, ...]) -> None:
        with mapped_errors("append events"):
            await self._stream.append([encode(event) for event in events])

    async def read_after(
        self, entry_id: str, *, count: int, block_s: float = 0.0
    ) -> tuple[Entry[AnyEvent], ...]:
        end_s = time.monotonic() + block_s
        with mapped_errors("read events"):
            while True:
                wait_s = max(0.0, end_s - time.monotonic())
                found = await self._stream.read(entry_id, count=count, block_s=wait_s)
                entries, unreadable = self._decoded(found)
                self._count_skipped(unreadable)
                if entries or not found:
                    return entries
                entry_id = found[-1][0]

    async def last_id(self) -> str:
        with mapped_errors("read the newest event's id"):
            return await self._stream.last_id()

    @property
    def skipped(self) -> int:
        """Records that could not be read, each counted once."""
        return self._skipped

    def _decoded(self, found: Sequence[RawEntry]) -> tuple[tuple[Entry[AnyEvent], ...], list[str]]:
        entries: list[Entry[AnyEvent]] = []
        unreadable: list[str] = []
        for entry_id, data in found:
            event: AnyEvent | None = decode_as(data, EVENT_TYPES)
            if event is None:
                unreadable.append(entry_id)
            else:
                entries.append(Entry(entry_id, event))
        return tuple(entries), unreadable

    def _count_skipped(self, entry_ids: Sequence[str]) -> None:
        """Count each once, though several readers meet it; the last ten thousand are known."""
        new = [entry_id for entry_id in entry_ids if entry_id not in self._skipped_ids]
        self._skipped += len(new)
        self._skipped_ids.update(dict.fromkeys(new))
        while len(self._skipped_ids) > _MAX_COUNTED_IDS:
            del self._skipped_ids[next(iter(self._skipped_ids))]
