"""The event log over a Redis stream with consumer groups."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import redis.asyncio
from redis.exceptions import ResponseError

from adapters.codec import EVENT_TYPES, decode_as, encode
from adapters.redis_client import block_ms, key_for, mapped_errors
from adapters.redis_streams import RawEntry, RedisStream, parsed, raw_entries
from contracts.events import AnyEvent
from contracts.ports import Entry
from contracts.redis_keys import EVENTS

_FORGOTTEN_CONSUMER_S = 3600.0
_MAX_COUNTED_IDS = 10_000


@dataclass(slots=True)
class _Reader:
    """What this process knows of one consumer of one group."""

    open: set[str] = field(default_factory=set)
    """Entries that were given out and not acknowledged yet."""
    doubtful: bool = True
    """Whether the server may hold entries for it that never arrived: at start, after a fault."""
    next_claim_s: float = 0.0


class RedisEventLog:
    """``EventLog`` over one Redis stream.

    Parameters
    ----------
    claim_idle_s : float
        What a consumer left unacknowledged for this many real seconds goes to another.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        *,
        key: str = EVENTS,
        max_entries: int = 200_000,
        claim_idle_s: float = 60.0,
    ) -> None:
        self._key = key_for(client, key)
        self._stream = RedisStream(client, self._key, max_entries=max_entries, is_kept=True)
        self._client = client
        self._claim_idle_s = claim_idle_s
        self._readers: dict[tuple[str, str], _Reader] = {}
        self._skipped = 0
        self._skipped_ids: dict[str, None] = {}

    async def append(self, events: tuple[AnyEvent, ...]) -> None:
        with mapped_errors("append events"):
            await self._stream.append([encode(event) for event in events])

    async def read_group(
        self, group: str, consumer: str, *, count: int, block_s: float
    ) -> tuple[Entry[AnyEvent], ...]:
        reader = self._readers.setdefault((group, consumer), _Reader())
        delivered = False
        try:
            with mapped_errors(f"read events for {group}"):
                entries = await self._read_group(reader, group, consumer, count, block_s)
            delivered = True
        finally:
            if not delivered:
                reader.doubtful = True
        reader.open.update(entry.entry_id for entry in entries)
        return entries

    async def ack(self, group: str, entry_ids: tuple[str, ...]) -> None:
        if not entry_ids:
            return
        with mapped_errors(f"acknowledge events for {group}"):
            await self._client.xack(self._key, group, *entry_ids)
        for (of_group, _), reader in self._readers.items():
            if of_group == group:
                reader.open.difference_update(entry_ids)

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

    async def _read_group(
        self, reader: _Reader, group: str, consumer: str, count: int, block_s: float
    ) -> tuple[Entry[AnyEvent], ...]:
        end_s = time.monotonic() + block_s
        while True:
            found = await self._own_pending(reader, group, consumer, count)
            found = found or await self._claimed(reader, group, consumer, count)
            if not found:
                wait_s = max(0.0, end_s - time.monotonic())
                found = await self._next(group, consumer, ">", count, wait_s)
            entries, unreadable = self._decoded(found)
            if unreadable:
                self._count_skipped(unreadable)
                await self._client.xack(self._key, group, *unreadable)
            if entries or not found:
                return entries

    async def _own_pending(
        self, reader: _Reader, group: str, consumer: str, count: int
    ) -> list[RawEntry]:
        if not reader.doubtful and not reader.open:
            return []
        found = await self._next(group, consumer, "0", count, 0.0)
        if not found:
            reader.doubtful = False
            reader.open.clear()
        return found

    async def _claimed(
        self, reader: _Reader, group: str, consumer: str, count: int
    ) -> list[RawEntry]:
        """Entries that a dead consumer of the group left; looked for twice per idle time."""
        now_s = time.monotonic()
        if now_s < reader.next_claim_s:
            return []
        reply = await self._client.xautoclaim(
            self._key, group, consumer, int(self._claim_idle_s * 1000), count=count
        )
        found = parsed(reply[1])
        if not found:
            reader.next_claim_s = now_s + self._claim_idle_s / 2
            await self._forget_consumers(group, consumer)
        return found

    async def _forget_consumers(self, group: str, own: str) -> None:
        """Take consumers off the group that are long gone and owe nothing."""
        for consumer in await self._client.xinfo_consumers(self._key, group):
            name = consumer["name"].decode()
            gone = consumer["idle"] > _FORGOTTEN_CONSUMER_S * 1000
            if name != own and gone and consumer["pending"] == 0:
                await self._client.xgroup_delconsumer(self._key, group, name)

    async def _next(
        self, group: str, consumer: str, after: str, count: int, block_s: float
    ) -> list[RawEntry]:
        for _ in range(3):
            try:
                reply = await self._client.xreadgroup(
                    group, consumer, {self._key: after}, count=count, block=block_ms(block_s)
                )
                return raw_entries(reply)
            except ResponseError as error:
                # A server that lost its data lost the group too, perhaps while we waited.
                if not str(error).startswith("NOGROUP"):
                    raise
                await self._create_group(group)
        return []

    async def _create_group(self, group: str) -> None:
        try:
            await self._client.xgroup_create(self._key, group, id="0", mkstream=True)
        except ResponseError as error:
            if not str(error).startswith("BUSYGROUP"):
                raise

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
