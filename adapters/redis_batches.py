"""The state of batches in Redis. Each change is one step, made from the state that it names."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from dataclasses import replace

import msgspec
import redis.asyncio
import structlog

from adapters.redis_client import key_for, mapped_errors
from contracts.batches import Batch
from contracts.redis_keys import BATCHES, batch_taken

_REPLACE_LUA = """
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if not stored or cjson.decode(stored).revision ~= tonumber(ARGV[2]) then
  return 0
end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 1
"""
_TAKE_LUA = """
local owner = redis.call('GET', KEYS[1])
if owner and owner ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
_LET_GO_LUA = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
"""
_DECODER = msgspec.json.Decoder(Batch)
_log = structlog.get_logger(__name__)


class RedisBatchStore:
    """``BatchStore`` in one hash; who works on a batch is a key that expires."""

    def __init__(self, client: redis.asyncio.Redis) -> None:
        self._client = client
        self._records = key_for(client, BATCHES)
        self._replace = client.register_script(_REPLACE_LUA)
        self._take = client.register_script(_TAKE_LUA)
        self._let_go = client.register_script(_LET_GO_LUA)

    async def add(self, batch: Batch) -> None:
        with mapped_errors("store a batch"):
            await self._client.hset(self._records, batch.batch_id, msgspec.json.encode(batch))

    async def get(self, batch_id: str) -> Batch | None:
        with mapped_errors("read a batch"):
            stored = await self._client.hget(self._records, batch_id)
        return None if stored is None else _decoded(batch_id, stored)

    async def replace(self, batch: Batch) -> Batch | None:
        changed = replace(batch, revision=batch.revision + 1)
        arguments: list[bytes | str | int] = [
            batch.batch_id,
            batch.revision,
            msgspec.json.encode(changed),
        ]
        with mapped_errors("change a batch"):
            written = await self._replace(keys=[self._records], args=arguments)
        return changed if written else None

    async def list(self) -> tuple[Batch, ...]:
        with mapped_errors("list batches"):
            stored = await self._client.hgetall(self._records)
        found = [_decoded(_text(name), record) for name, record in stored.items()]
        known = [batch for batch in found if batch is not None]
        return tuple(sorted(known, key=lambda b: (b.created_at_s, b.batch_id), reverse=True))

    async def remove(self, batch_id: str) -> None:
        with mapped_errors("remove a batch"):
            await self._client.hdel(self._records, batch_id)

    async def take(self, batch_id: str, owner: str, *, hold_s: float) -> bool:
        with mapped_errors("take a batch"):
            taken = await self._take(
                keys=[key_for(self._client, batch_taken(batch_id))],
                args=[owner, int(hold_s * 1000)],
            )
        return bool(taken)

    async def is_taken(self, batch_id: str) -> bool:
        with mapped_errors("look who has a batch"):
            return bool(await self._client.exists(key_for(self._client, batch_taken(batch_id))))

    async def let_go(self, batch_id: str, owner: str) -> None:
        with mapped_errors("let go of a batch"):
            await self._let_go(keys=[key_for(self._client, batch_taken(batch_id))], args=[owner])


def _decoded(batch_id: str, record: bytes | str) -> Batch | None:
    try:
        return _DECODER.decode(record)
    except msgspec.MsgspecError as error:
        _log.warning("batch_unreadable", batch=batch_id, error=str(error))
        return None


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
