"""Data of another release in Redis: brought up once, or left alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import redis

from adapters.redis_client import mapped_errors
from adapters.redis_format import (
    WrongFormat,
    connect_blocking_settled,
    connect_settled,
    settle,
    settle_at_start,
)
from adapters.redis_stored import read_stored, write_stored
from contracts.data_format import FORMAT, KeyMigration, Stored, read_mark
from contracts.errors import Invalid, Permanent

pytestmark = pytest.mark.integration

NEWER = b'{"format": 99, "written_by": "9.9"}'
KEY = "headstart:format"


@pytest.fixture
def client(redis_url: str):
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        yield client


def number_in(client: redis.Redis) -> int | None:
    text: Any = client.get(KEY)
    mark = read_mark(text)
    return None if mark is None else mark.number


def everything(client: redis.Redis) -> dict[bytes, Stored | None]:
    return {key: read_stored(client, key.decode()) for key in client.scan_iter()}


KINDS: tuple[Stored, ...] = (
    Stored(key="headstart:string", kind="string", content=b"\x00\xff"),
    Stored(key="headstart:hash", kind="hash", content={b"a": b"1", b"b": b"\xfe"}),
    Stored(key="headstart:set", kind="set", content=frozenset({b"x", b"y"})),
    Stored(key="headstart:list", kind="list", content=(b"1", b"\xff", b"1")),
    Stored(key="headstart:zset", kind="zset", content=((b"low", 1.5), (b"high", 2.0))),
    Stored(
        key="headstart:stream", kind="stream", content=(("1-1", {b"d": b"1"}), ("2-0", {b"d": b""}))
    ),
)  # fmt: skip


@pytest.mark.parametrize("stored", KINDS, ids=lambda stored: stored.kind)
def test_a_key_is_read_and_written_as_it_was(client: redis.Redis, stored: Stored):
    write_stored(client, stored)
    assert read_stored(client, stored.key) == stored
    write_stored(client, replace(stored, expires_in_ms=60_000))
    assert 0 < client.pttl(stored.key) <= 60_000


def test_what_is_not_there(client: redis.Redis):
    assert read_stored(client, "headstart:none") is None


def test_an_empty_server_is_marked(client: redis.Redis, redis_url: str):
    settle_at_start(redis_url)
    assert number_in(client) == FORMAT
    assert everything(client).keys() == {KEY.encode()}


def grown(stored: Stored) -> Stored | None:
    """Renames a field, and is as good as nothing where that was done."""
    assert isinstance(stored.content, dict)
    if b"old" not in stored.content:
        return stored
    content = {**stored.content, b"new": stored.content[b"old"]}
    del content[b"old"]
    return replace(stored, content=content)


def dropped(_stored: Stored) -> Stored | None:
    return None


UP = {
    1: (KeyMigration(pattern="headstart:things:*", change=grown),),
    3: (KeyMigration(pattern="headstart:junk", change=dropped),),
}


def test_older_data_is_brought_up_step_by_step_and_once(client: redis.Redis, redis_url: str):
    for number in range(30):
        client.hset(f"headstart:things:{number}", "old", number)
    client.set("headstart:junk", b"1")
    starters = [
        threading.Thread(target=settle, args=(redis_url,), kwargs={"known": 4, "migrations": UP})
        for _ in range(4)
    ]
    for starter in starters:
        starter.start()
    for starter in starters:
        starter.join(20.0)
    assert number_in(client) == 4
    assert client.hgetall("headstart:things:7") == {b"new": b"7"}
    assert not client.exists("headstart:junk")
    assert not client.exists(KEY + ":lock")
    # What an older process still wrote is not gone through again.
    client.hset("headstart:things:late", "old", 1)
    settle(redis_url, known=4, migrations=UP)
    assert client.hgetall("headstart:things:late") == {b"old": b"1"}


def test_a_change_that_fails_leaves_the_number_and_no_lock(client: redis.Redis, redis_url: str):
    def fails(_stored: Stored) -> Stored | None:
        raise ArithmeticError("a bug")

    client.set("headstart:junk", b"1")
    with pytest.raises(ArithmeticError):
        settle(
            redis_url,
            known=2,
            migrations={1: (KeyMigration(pattern="headstart:junk", change=fails),)},
        )
    assert client.keys() == [b"headstart:junk"]


def test_who_is_so_slow_that_another_has_its_turn_stops_and_waits(
    client: redis.Redis, redis_url: str
):
    client.mset({"headstart:a": b"1", "headstart:b": b"1"})
    lock, changed = KEY + ":lock", []

    def slow(stored: Stored) -> Stored:
        changed.append((stored.key, client.get(lock) == b"another's"))
        if len(changed) == 1:
            client.set(lock, b"another's", px=300)
        return stored

    up = {1: (KeyMigration(pattern="headstart:?", change=slow),)}
    settle(redis_url, known=2, migrations=up)
    assert number_in(client) == 2
    assert not client.exists(lock)
    # The first key once more, by whoever has the lock then, and none beside the other.
    assert len(changed) == 3
    assert not any(beside for _, beside in changed)


@pytest.mark.parametrize("mark", [NEWER, b"", b"nonsense"])
def test_newer_data_is_refused_at_the_start(client: redis.Redis, redis_url: str, mark: bytes):
    client.set(KEY, mark)
    with pytest.raises(Invalid, match="this is headstart"):
        settle_at_start(redis_url)
    assert everything(client) == {KEY.encode(): Stored(key=KEY, kind="string", content=mark)}


async def test_no_connection_of_a_process_that_runs_uses_newer_data(
    client: redis.Redis, redis_url: str
):
    client.set(KEY, NEWER)
    running = connect_settled(redis_url)
    with pytest.raises(Permanent, match="format 99"), mapped_errors("write"):
        await running.set("headstart:mode", b"active")
    await running.aclose()
    with connect_blocking_settled(redis_url, attempts=3) as blocking, pytest.raises(WrongFormat):
        blocking.set("headstart:mode", b"active")
    assert client.keys() == [KEY.encode()]


async def test_a_server_that_came_later_or_lost_its_data_is_marked_by_the_next_connection(
    client: redis.Redis, redis_url: str
):
    running = connect_settled(redis_url)
    assert await running.set("headstart:mode", b"active")
    assert number_in(client) == FORMAT
    await running.aclose()
    client.flushall()
    with connect_blocking_settled(redis_url) as blocking:
        blocking.ping()
    assert number_in(client) == FORMAT


def test_a_server_that_is_away_is_no_reason_not_to_start():
    settle_at_start("redis://127.0.0.1:1/0")


def test_a_server_that_wants_a_password_is_none_either(start_redis: Callable[..., Any]):
    settle_at_start(start_redis(requirepass="secret").url)


async def test_a_server_that_is_full_can_still_be_read(start_redis: Callable[..., Any]):
    server = start_redis(maxmemory="1")
    settle_at_start(server.url)
    running = connect_settled(server.url)
    assert await running.get("headstart:mode") is None
    await running.aclose()
