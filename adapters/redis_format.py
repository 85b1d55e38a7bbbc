"""The format of what is in Redis: looked at by every connection that writes, brought up once.

A server that holds data of a newer release is left alone, whenever it comes: at a start, or when
a process that runs meets another server at the address. In a cluster the mark is on one node, and
is looked at when a process starts alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence

import redis
import redis.asyncio
import redis.connection
import structlog
from redis.exceptions import LockNotOwnedError, RedisError, ResponseError
from redis.lock import Lock

from adapters.redis_blocking import connect_blocking
from adapters.redis_client import connect, key_for
from adapters.redis_stored import keys_like, read_stored, write_stored
from adapters.release import installed_release
from contracts.data_format import (
    FORMAT,
    KEY_MIGRATIONS,
    DataFormat,
    KeyMigration,
    read_mark,
    refusal,
    steps,
    write_mark,
)
from contracts.errors import Invalid
from contracts.redis_keys import FORMAT as FORMAT_KEY
from contracts.redis_keys import FORMAT_LOCK

_LOCK_S = 60.0
_PATIENCE_REAL_S = 300.0
_POLL_REAL_S = 0.1
_PLACE = "Redis"

_log = structlog.get_logger("headstart.data")


class WrongFormat(RedisError):
    """The server's data is of a newer release; said by a connection, and never tried again."""


def connect_settled(url: str) -> redis.asyncio.Redis:
    """``connect``, for processes that write: a connection is of use where the format is ours."""

    async def greet(connection: redis.asyncio.Connection) -> None:
        # A look at its health would greet again a connection that breaks, and so on for ever.
        await connection.on_connect_check_health(check_health=False)
        await connection.send_command("GET", FORMAT_KEY, check_health=False)
        if not is_ours(await connection.read_response()):
            await asyncio.to_thread(settle, url)

    return connect(url, greet=greet)


def connect_blocking_settled(url: str, *, attempts: int = 0) -> redis.Redis:
    """``connect_blocking`` with the same look."""

    def greet(connection: redis.connection.AbstractConnection) -> None:
        connection.on_connect_check_health(check_health=False)
        connection.send_command("GET", FORMAT_KEY, check_health=False)  # type: ignore[no-untyped-call] # redis-py's
        if not is_ours(connection.read_response()):
            settle(url)

    return connect_blocking(url, attempts=attempts, greet=greet)


def settle_at_start(*urls: str) -> None:
    """Refuse newer data, bring older data up, mark what has no mark. One try, a second at most.

    Each server once. One that is away is looked at again by the first connection to it; a cluster
    is not.

    Raises
    ------
    Invalid
        The data is of a newer release; with what to do.
    """
    for url in dict.fromkeys(urls):
        try:
            settle(url)
        except WrongFormat as error:
            raise Invalid(str(error)) from error
        except (RedisError, OSError) as error:
            _log.debug("data_format_not_seen", error=f"{type(error).__name__}: {error}"[:200])


def settle(
    url: str,
    *,
    known: int = FORMAT,
    migrations: Mapping[int, Sequence[KeyMigration]] = KEY_MIGRATIONS,
) -> None:
    """As ``settle_at_start``, with the server's errors. Raises RedisError, WrongFormat."""
    with connect_blocking(url) as client:
        until_s = time.monotonic() + _PATIENCE_REAL_S
        while not (_is_settled(client, known) or _is_marked_now(client, known)):
            lock = client.lock(key_for(client, FORMAT_LOCK), timeout=_LOCK_S, blocking=False)
            if lock.acquire():
                # Who is too slow loses it to another: it stops at the next key, and waits too.
                with contextlib.suppress(LockNotOwnedError):
                    try:
                        _bring_up(client, lock, known, migrations)
                    finally:
                        lock.release()
                continue
            if time.monotonic() > until_s:
                raise RedisError("another process does not get on with bringing data up")
            time.sleep(_POLL_REAL_S)


def is_ours(text: bytes | None) -> bool:
    """Whether a mark says what this release writes; no mark does not."""
    mark = None if text is None else read_mark(text)
    return mark is not None and mark.number == FORMAT


def _is_settled(client: redis.Redis, known: int) -> bool:
    """Whether nothing is to be done. Raises WrongFormat."""
    text = _text_of_mark(client)
    mark = read_mark(text)
    why = refusal(mark, place=_PLACE, release=installed_release(), known=known)
    if why is not None:
        raise WrongFormat(why)
    return text is not None and mark is not None and mark.number == known


def _is_marked_now(client: redis.Redis, known: int) -> bool:
    """Whether a mark was all that was missing. Where nothing can be written, it is for later."""
    mark = read_mark(_text_of_mark(client))
    if mark is None or mark.number != known:
        return False
    try:
        client.set(key_for(client, FORMAT_KEY), _mark(known), nx=True)
    except ResponseError as error:
        _log.debug("data_format_not_written", place=_PLACE, error=str(error)[:200])
    return True


def _text_of_mark(client: redis.Redis) -> bytes | None:
    text = client.get(key_for(client, FORMAT_KEY))
    return text.encode() if isinstance(text, str) else text


def _bring_up(
    client: redis.Redis,
    lock: Lock,
    known: int,
    migrations: Mapping[int, Sequence[KeyMigration]],
) -> None:
    if _is_settled(client, known):
        return  # by whoever had the lock before
    mark = read_mark(_text_of_mark(client))
    begun = known if mark is None else mark.number
    for number in steps(begun, known):
        changed = sum(_migrate(client, lock, each) for each in migrations.get(number, ()))
        client.set(key_for(client, FORMAT_KEY), _mark(number + 1))
        _log.info("data_brought_up", place=_PLACE, to_format=number + 1, changed=changed)
    client.set(key_for(client, FORMAT_KEY), _mark(known))


def _migrate(client: redis.Redis, lock: Lock, migration: KeyMigration) -> int:
    changed = 0
    for key in keys_like(client, key_for(client, migration.pattern)):
        lock.reacquire()
        before = read_stored(client, key)
        after = None if before is None else migration.change(before)
        if after == before:
            continue
        if after is None:
            client.delete(key)
        else:
            write_stored(client, after)
        changed += 1
    return changed


def _mark(number: int) -> bytes:
    return write_mark(DataFormat(number=number, written_by=installed_release()))
