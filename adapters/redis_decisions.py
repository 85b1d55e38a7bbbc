"""The decision journal over a bounded Redis stream, with an index by decision id."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Sequence

import redis.asyncio

from adapters.codec import decode_as, encode
from adapters.redis_client import key_for, mapped_errors
from adapters.redis_streams import RawEntry, RedisStream, parsed
from contracts.plan import Decision
from contracts.ports import Entry
from contracts.redis_keys import DECISIONS, DECISIONS_INDEX

_MAX_BATCH = 1000
_MAX_APPEND = 250

_APPEND_LUA = """
for i = 2, #ARGV, 2 do
  local entry = redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[1], '*', 'r', ARGV[i + 1])
  if ARGV[i] ~= '' then
    redis.call('ZADD', KEYS[2], string.match(entry, '^%d+'), ARGV[i])
  end
end
redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - ARGV[1])
return 1
"""
"""The index maps a decision id to the millisecond of its entry, and is as long as the journal."""


class RedisDecisionJournal:
    """``DecisionJournal``. ``skipped``: decisions that could not be read."""

    def __init__(self, client: redis.asyncio.Redis, *, max_entries: int = 20_000) -> None:
        self._client = client
        self._journal = key_for(client, DECISIONS)
        self._index = key_for(client, DECISIONS_INDEX)
        self._stream = RedisStream(client, self._journal, max_entries=max_entries)
        self._max_entries = max_entries
        self._append = client.register_script(_APPEND_LUA)
        self.skipped = 0

    async def append(self, decisions: tuple[Decision, ...]) -> None:
        with mapped_errors("append decisions"):
            for start in range(0, len(decisions), _MAX_APPEND):
                args: list[bytes | str | int] = [self._max_entries]
                for decision in decisions[start : start + _MAX_APPEND]:
                    args += (decision.decision_id, encode(decision))
                await self._append(keys=[self._journal, self._index], args=args)

    async def newest(
        self, *, limit: int, before: str | None = None, subject: str | None = None
    ) -> tuple[Entry[Decision], ...]:
        entries: list[Entry[Decision]] = []
        page = limit if subject is None else max(limit, _MAX_BATCH)
        end = "+" if before is None else f"({before}"
        with mapped_errors("read decisions"):
            while len(entries) < limit:
                found = parsed(
                    await self._client.xrevrange(self._journal, max=end, count=page) or ()
                )
                entries += [
                    entry
                    for entry in self._decoded(found)
                    if subject is None or entry.value.subject == subject
                ]
                if len(found) < page:
                    break
                end = f"({found[-1][0]}"
        return tuple(entries[:limit])

    async def get(self, decision_id: str) -> Decision | None:
        with mapped_errors("read a decision"):
            at_ms = await self._client.zscore(self._index, decision_id) if decision_id else None
            if at_ms is None:
                return None
            place = str(int(at_ms))
            found = parsed(await self._client.xrange(self._journal, min=place, max=place) or ())
        return next(
            (
                entry.value
                for entry in self._decoded(found)
                if entry.value.decision_id == decision_id
            ),
            None,
        )

    async def after(self, entry_id: str, *, block_s: float) -> tuple[Entry[Decision], ...]:
        with mapped_errors("read new decisions"):
            found = await self._stream.read(entry_id, count=_MAX_BATCH, block_s=block_s)
        return tuple(self._decoded(found))

    def _decoded(self, found: Sequence[RawEntry]) -> list[Entry[Decision]]:
        decisions = [(entry_id, decode_as(data, Decision)) for entry_id, data in found]
        entries = [Entry(entry_id, value) for entry_id, value in decisions if value is not None]
        self.skipped += len(decisions) - len(entries)
        return entries
