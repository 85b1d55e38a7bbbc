"""Keys of Redis as plain values, and back: what migrations and kept examples are made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import redis

from adapters.redis_client import exact_text
from contracts.data_format import Stored
from contracts.errors import Invalid

_BATCH = 1_000


def read_stored(client: redis.Redis, key: str) -> Stored | None:
    """All that is in a key; None where there is none. Raises Invalid for a kind of no use here."""
    found: Any = client  # its replies are bytes: clients made here decode nothing
    kind = exact_text(found.type(key))
    if kind == "none":
        return None
    content: Any
    match kind:
        case "string":
            content = found.get(key) or b""
        case "hash":
            content = found.hgetall(key)
        case "set":
            content = frozenset(found.smembers(key))
        case "list":
            content = tuple(found.lrange(key, 0, -1))
        case "zset":
            content = tuple(found.zrange(key, 0, -1, withscores=True))
        case "stream":
            content = tuple(
                (exact_text(entry), dict(fields)) for entry, fields in found.xrange(key)
            )
        case _:
            raise Invalid(f"{key}: a {kind} is nothing that is kept")
    left_ms = int(found.pttl(key))
    return Stored(
        key=key, kind=kind, content=content, expires_in_ms=left_ms if left_ms >= 0 else None
    )


def write_stored(client: redis.Redis, stored: Stored) -> None:
    """Put a key in the place of what was there, in one step."""
    key, content = stored.key, stored.content
    with client.pipeline(transaction=True) as pipe:
        pipe.delete(key)
        for command in _commands(key, stored.kind, content):
            pipe.execute_command(*command)  # type: ignore[no-untyped-call] # redis-py's
        if stored.expires_in_ms is not None:
            pipe.pexpire(key, max(1, stored.expires_in_ms))
        pipe.execute()


def _commands(key: str, kind: str, content: Any) -> Iterator[tuple[Any, ...]]:
    match kind:
        case "string":
            yield "SET", key, content
        case "hash":
            yield "HSET", key, *(word for pair in content.items() for word in pair)
        case "set":
            yield "SADD", key, *sorted(content)
        case "list":
            yield "RPUSH", key, *content
        case "zset":
            yield "ZADD", key, *(word for member, score in content for word in (score, member))
        case _:
            for entry, fields in content:
                yield "XADD", key, entry, *(word for pair in fields.items() for word in pair)


def keys_like(client: redis.Redis, pattern: str) -> Iterator[str]:
    """Keys that fit, each at least once."""
    for key in client.scan_iter(match=pattern, count=_BATCH):
        yield exact_text(key)
