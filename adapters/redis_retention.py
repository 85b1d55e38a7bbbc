"""Trimming of the logs in Redis: by the age of their entries and by their number."""

from __future__ import annotations

from redis.asyncio import Redis

from adapters.redis_client import key_for, mapped_errors

# In one step, so that an entry that is appended meanwhile is not counted as trimmed. Ages are
# the server's: ids of entries begin with its milliseconds.
_TRIM_LUA = """
local time = redis.call('TIME')
local oldest = time[1] * 1000 + math.floor(time[2] / 1000) - ARGV[1]
local gone = redis.call('XTRIM', KEYS[1], 'MINID', '=', string.format('%.0f', math.max(0, oldest)))
gone = gone + redis.call('XTRIM', KEYS[1], 'MAXLEN', '=', ARGV[2])
if KEYS[2] then
  local first = redis.call('XRANGE', KEYS[1], '-', '+', 'COUNT', 1)[1]
  local kept = first and string.match(first[1], '^%d+') or '+inf'
  redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. kept)
end
return gone
"""


class RedisTrimmable:
    """``contracts.ports.Trimmable`` over one stream.

    Parameters
    ----------
    index_key : str or None
        A sorted set of names by the millisecond of their entry, trimmed along.
    """

    def __init__(self, client: Redis, key: str, *, index_key: str | None = None) -> None:
        names = [key] if index_key is None else [key, index_key]
        self._keys = [key_for(client, name) for name in names]
        self._trim = client.register_script(_TRIM_LUA)

    async def trim(self, *, max_age_s: float, max_entries: int) -> int:
        """Remove entries that are too old, then the oldest beyond ``max_entries``."""
        with mapped_errors(f"trim {self._keys[0]}"):
            return int(
                await self._trim(keys=self._keys, args=[round(max_age_s * 1000), max_entries])
            )
