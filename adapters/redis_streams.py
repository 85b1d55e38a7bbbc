"""What the logs and mailboxes over Redis Streams share: one field per entry, bounded length."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from time import monotonic as monotonic_s

import redis.asyncio
import structlog

from adapters.redis_client import block_ms, text
from adapters.unsettled import Unsettled

FIELD = b"r"
"""The only field of an entry: the encoded record."""

_log = structlog.get_logger(__name__)

# Nothing is appended, and nil is the answer, where the entry ARGV[2] is gone, and not because the
# stream is full: it holds few, or what is older than that entry.
_APPEND_LUA = """
local place = ARGV[2]
if place ~= '' and #redis.call('XRANGE', KEYS[1], place, place) == 0 then
  if redis.call('XLEN', KEYS[1]) < tonumber(ARGV[1])
      or #redis.call('XRANGE', KEYS[1], '-', place, 'COUNT', 1) > 0 then
    return false
  end
end
local id
for i = 3, #ARGV do
  id = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'r', ARGV[i])
end
return id
"""
_MAX_APPEND = 500
LEAST_ENTRIES = 64
_MAX_LOSSES = 3
"""In one call; a server that loses more than this is none to write to."""

Reply = bytes | str

RawEntry = tuple[str, Reply]
"""An entry's id and its record."""


class RedisStream:
    """One bounded stream.

    Parameters
    ----------
    max_entries : int
        About this many are kept (``MAXLEN ~``); the oldest go.
    max_bytes : int or None
        Fewer are kept when records are so large that they would take more than this together,
        but never fewer than 64. None: records are small.
    is_kept : bool
        Whether what a server lost with its death is appended again: a server that is killed, or
        a replica that takes its place, may not have the last seconds of what was acknowledged.
        It is seen with the next batch, and some of it may then be there twice.
    """

    def __init__(
        self,
        client: redis.asyncio.Redis,
        key: str,
        *,
        max_entries: int,
        max_bytes: int | None = None,
        is_kept: bool = False,
    ) -> None:
        self.client = client
        self.key = key
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        # One script call per batch costs a fifth of a pipeline of XADDs, and a server that is
        # out of memory refuses it as a whole.
        self._append = client.register_script(_APPEND_LUA)
        self._unsettled = Unsettled() if is_kept else None
        self._one_at_a_time = asyncio.Lock()

    async def append(self, records: Sequence[bytes]) -> None:
        """Append in order, in calls of a size that does not hold up the server."""
        if self._unsettled is not None:
            async with self._one_at_a_time:
                await self._append_kept(self._unsettled, list(records))
            return
        for start in range(0, len(records), _MAX_APPEND):
            await self._add(records[start : start + _MAX_APPEND], "")

    async def _append_kept(self, unsettled: Unsettled, records: list[bytes]) -> None:
        """What the server lost comes first; it stays owed until it is there again."""
        losses = 0
        while waiting := unsettled.owed or records:
            batch = waiting[:_MAX_APPEND]
            entry_id = await self._add(batch, unsettled.place(monotonic_s()))
            if entry_id is not None:
                unsettled.appended(batch, text(entry_id), monotonic_s())
                del waiting[: len(batch)]
                continue
            losses += 1
            owed = unsettled.lost()
            _log.warning("stream_lost_its_end", stream=self.key, appended_again=owed)
            if losses > _MAX_LOSSES:
                raise redis.exceptions.ConnectionError("it loses what it takes")

    async def _add(self, batch: Sequence[bytes], place: str) -> Reply | None:
        """The last one's id; None: ``place`` is not there any more, and nothing was appended."""
        reply: Reply | None = await self._append(
            keys=[self.key], args=[self._bound(batch), place, *batch]
        )
        return reply

    async def read(self, after: str, *, count: int, block_s: float) -> list[RawEntry]:
        """Up to ``count`` entries after the id ``after``, waiting up to ``block_s``."""
        reply = await self.client.xread({self.key: after}, count=count, block=block_ms(block_s))
        return parsed(reply[0][1]) if isinstance(reply, list) and reply else []

    async def last_id(self) -> str:
        """The newest entry's id, "0" while there is none."""
        newest = await self.client.xrevrange(self.key, count=1)
        return parsed(newest)[0][0] if newest else "0"

    def _bound(self, batch: Sequence[bytes]) -> int:
        if self._max_bytes is None:
            return self._max_entries
        fitting = self._max_bytes // max(map(len, batch))
        return min(self._max_entries, max(LEAST_ENTRIES, fitting))


def parsed(entries: Sequence[tuple[Reply | None, Mapping[Reply, Reply] | None]]) -> list[RawEntry]:
    """Entries of redis-py as ids and records."""
    return [
        (text(entry_id), fields.get(FIELD, b"") if fields else b"")
        for entry_id, fields in entries
        if entry_id is not None
    ]
