"""Results of background jobs in Redis: written once, kept for a while."""

from __future__ import annotations

import json
from collections.abc import Mapping

from redis.asyncio import Redis

from adapters.redis_client import mapped_errors
from contracts.redis_keys import job_cancelled, job_result


class RedisJobResults:
    """``contracts.ports.JobResults``; ``ttl_s`` real seconds after a commit the result goes."""

    def __init__(self, client: Redis, *, ttl_s: int) -> None:
        self._client = client
        self._ttl_s = ttl_s

    async def get(self, job_id: str) -> Mapping[str, object] | None:
        """The job's result, None when it has none (any more)."""
        with mapped_errors("read a job's result"):
            stored = await self._client.get(job_result(job_id))
        return None if stored is None else json.loads(stored)

    async def commit(self, job_id: str, result: Mapping[str, object]) -> bool:
        """Whether this is the job's result now; False when it had one."""
        data = json.dumps(result, separators=(",", ":"), allow_nan=False)
        with mapped_errors("store a job's result"):
            return bool(await self._client.set(job_result(job_id), data, nx=True, ex=self._ttl_s))

    async def cancel(self, job_id: str) -> None:
        """Have a run broken off."""
        with mapped_errors("cancel a job"):
            await self._client.set(job_cancelled(job_id), 1, ex=self._ttl_s)

    async def is_cancelled(self, job_id: str) -> bool:
        """Whether it was cancelled."""
        with mapped_errors("look whether a job was cancelled"):
            return bool(await self._client.exists(job_cancelled(job_id)))
