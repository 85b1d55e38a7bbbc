"""What Headstart has written into Redis, and its end: all of our keys, and nothing else.

Keys of our own begin with ``headstart:``. RQ's have names of its own, which another program
that uses RQ on the same server has as well: ours are those of our queues, and of the jobs that
came from them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

import redis.asyncio

from adapters.redis_client import exact_text, key_for, mapped_errors
from contracts.redis_keys import LEASE, PREFIX

_RQ = "rq:"
_JOB, _WORKER = "rq:job:", "rq:worker:"
_QUEUES, _WORKERS = "rq:queues", "rq:workers"
_AT_ONCE = 500


class RedisFootprint:
    """Counts and removes.

    Parameters
    ----------
    queues : collection of str
        The names of our queues.
    """

    def __init__(self, client: redis.asyncio.Redis, queues: Collection[str]) -> None:
        self._client = client
        self._queues = frozenset(queues)

    async def count(self) -> dict[str, int]:
        """How many keys there are, by how they begin. Raises Transient."""
        counts = {PREFIX: 0, _RQ: 0}
        async for key in self._ours():
            counts[PREFIX if key.startswith(PREFIX) else _RQ] += 1
        return counts

    async def is_led(self, now_s: float) -> bool:
        """Whether a controller leads: then all of it would be written again. Raises Transient."""
        with mapped_errors("read the lease"):
            expires = await self._client.hget(key_for(self._client, LEASE), "expires_at_s")
        return expires is not None and float(expires) > now_s

    async def remove(self) -> int:
        """Remove them; how many went. Raises Transient."""
        removed, batch = 0, []
        async for key in self._ours():
            batch.append(key)
            if len(batch) >= _AT_ONCE:
                removed += await self._unlink(batch)
                batch = []
        removed += await self._unlink(batch)
        with mapped_errors("remove our keys"):
            # Where RQ never was, we may not be allowed to name its keys.
            async for _ in self._client.scan_iter(match=_QUEUES, count=_AT_ONCE):
                await self._client.srem(_QUEUES, *(f"rq:queue:{name}" for name in self._queues))
        return removed

    async def _unlink(self, keys: list[str]) -> int:
        if not keys:
            return 0
        with mapped_errors("remove our keys"):
            workers = [key for key in keys if key.startswith(_WORKER)]
            if workers:
                await self._client.srem(_WORKERS, *workers)
            return int(await self._client.unlink(*keys))

    async def _ours(self) -> AsyncIterator[str]:
        with mapped_errors("look for our keys"):
            async for key in self._client.scan_iter(match=f"{PREFIX}*", count=_AT_ONCE):
                yield exact_text(key)
            async for key in self._client.scan_iter(match=f"{_RQ}*", count=_AT_ONCE):
                if await self._is_ours(exact_text(key)):
                    yield exact_text(key)

    async def _is_ours(self, key: str) -> bool:
        if key in (_QUEUES, _WORKERS):
            return False
        field = {_JOB: "origin", _WORKER: "queues"}
        for prefix, name in field.items():
            if key.startswith(prefix):
                return await self._names_ours(key, name)
        return any(key.endswith(f":{queue}") for queue in self._queues)

    async def _names_ours(self, key: str, field: str) -> bool:
        """Whether a job or a worker says that it is of our queues alone."""
        if await self._client.type(key) not in (b"hash", "hash"):
            return False
        told = await self._client.hget(key, field)
        names = [] if told is None else exact_text(told).split(",")
        return bool(names) and set(names) <= self._queues
