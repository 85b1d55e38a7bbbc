"""Who leads, or owns: leases in Redis with fencing tokens, each by its name."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import redis.asyncio

from adapters.redis_client import key_for, mapped_errors
from contracts.redis_keys import LEASE, LEASE_TOKEN, PREDICTOR_LEASE, PREDICTOR_LEASE_TOKEN

_ACQUIRE_LUA = """
local held = redis.call('HMGET', KEYS[1], 'owner', 'token', 'expires_at_s')
if held[1] and held[1] ~= ARGV[1] and tonumber(held[3]) > tonumber(ARGV[2]) then
  return false
end
local token = held[2]
if held[1] ~= ARGV[1] then
  token = redis.call('INCR', KEYS[2])
  if token < tonumber(ARGV[4]) then
    token = ARGV[4]
    redis.call('SET', KEYS[2], token)
  end
end
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token, 'expires_at_s', ARGV[3])
return tostring(token)
"""

_RELEASE_LUA = """
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
"""


PREDICTORS_LEASE = (PREDICTOR_LEASE, PREDICTOR_LEASE_TOKEN)
"""Keys of the lease whose holder publishes forecasts."""


class RedisLease:
    """``Lease`` in one script each, so that taking and renewing are one step.

    Times are the caller's clock, hence no Redis expiry. A token is at least the clock's
    milliseconds: tokens keep growing even when the server lost its data, and gateways that
    remember the last one are not locked out.

    Parameters
    ----------
    keys : pair of str
        The lease, and its last token; of one use. Default: the controllers'.
    """

    def __init__(
        self, client: redis.asyncio.Redis, keys: tuple[str, str] = (LEASE, LEASE_TOKEN)
    ) -> None:
        self._keys = [key_for(client, key) for key in keys]
        self._acquire = client.register_script(_ACQUIRE_LUA)
        self._release = client.register_script(_RELEASE_LUA)

    async def acquire(self, owner: str, *, now_s: float, lease_s: float) -> int | None:
        with mapped_errors("acquire the lease"):
            token = await self._acquire(
                keys=self._keys,
                args=[owner, repr(now_s), repr(now_s + lease_s), int(now_s * 1000)],
            )
        return None if token is None else int(token)

    async def release(self, owner: str) -> None:
        with mapped_errors("release the lease"):
            await self._release(keys=self._keys[:1], args=[owner])
