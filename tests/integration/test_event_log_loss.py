"""A server that dies may lose what it acknowledged: the writer has it, and writes it again."""

from __future__ import annotations

import asyncio

import pytest
import structlog.testing

from adapters import redis_streams
from adapters.redis_events import RedisEventLog
from adapters.unsettled import UNSETTLED_S
from contracts.errors import Transient
from contracts.events import NodeLost
from contracts.ids import NodeId
from contracts.redis_keys import EVENTS

pytestmark = pytest.mark.integration


def events(*numbers: int) -> tuple[NodeLost, ...]:
    return tuple(
        NodeLost(event_id=f"e{number}", at_s=0.0, source="t", node=NodeId("n"), error="x" * 100)
        for number in numbers
    )


async def told(log: RedisEventLog) -> list[int]:
    entries = await log.read_after("0", count=10_000)
    return [int(entry.value.event_id[1:]) for entry in entries]


async def test_what_died_with_the_server_is_there_again_with_the_next_batch(
    make_client, start_redis
):
    server = start_redis()
    log = RedisEventLog(make_client(server.url))
    await log.append(events(1, 2))
    await log.append(events(3))
    server.kill()
    server.start()
    with structlog.testing.capture_logs() as lines:
        await log.append(events(4))
    assert await told(log) == [1, 2, 3, 4]
    (line,) = lines
    assert (line["event"], line["appended_again"]) == ("stream_lost_its_end", 3)


async def test_who_writes_second_to_a_server_that_began_anew_sees_it_too(make_client, start_redis):
    server = start_redis()
    first, second = (RedisEventLog(make_client(server.url)) for _ in range(2))
    await first.append(events(1))
    await second.append(events(2))
    server.kill()
    server.start()
    await first.append(events(3))
    await second.append(events(4))
    assert await told(first) == [1, 3, 2, 4]


async def test_two_that_write_through_one_log_at_once_owe_each_record_once(
    make_client, start_redis
):
    server = start_redis()
    log = RedisEventLog(make_client(server.url))
    await log.append(events(1, 2))
    server.kill()
    server.start()
    await asyncio.gather(log.append(events(3)), log.append(events(4)))
    assert await told(log) == [1, 2, 3, 4]


async def test_a_server_that_keeps_nothing_is_none_to_write_to(make_client, redis_url, monkeypatch):
    """As behind an address of two masters that do not know of each other."""
    client = make_client(redis_url)
    log = RedisEventLog(client)
    await log.append(events(*range(600)))
    script = log._stream._append

    async def forgetful(keys, args):
        await client.flushall()
        return await script(keys=keys, args=args)

    with monkeypatch.context() as patched:
        patched.setattr(log._stream, "_append", forgetful)
        with pytest.raises(Transient):
            await log.append(events(600))
    await log.append(events(600))
    assert sorted(set(await told(log))) == list(range(601))


async def test_an_end_that_is_gone_is_seen_though_others_have_written_since(make_client, redis_url):
    client = make_client(redis_url)
    mine, other = RedisEventLog(client), RedisEventLog(client)
    await mine.append(events(1))
    await mine.append(events(2))
    ((lost, _),) = await client.xrevrange(EVENTS, count=1)
    await client.xdel(EVENTS, lost)
    await other.append(events(3))
    await mine.append(events(4))
    assert await told(mine) == [1, 3, 1, 2, 4]


async def test_many_that_were_lost_are_written_in_batches(make_client, start_redis):
    server = start_redis()
    log = RedisEventLog(make_client(server.url))
    await log.append(events(*range(1200)))
    server.kill()
    server.start()
    await log.append(events(1200))
    assert await told(log) == list(range(1201))


async def test_what_was_lost_stays_owed_while_the_server_takes_nothing(make_client, redis_url):
    client = make_client(redis_url)
    log = RedisEventLog(client)
    await log.append(events(1))
    await client.flushall()
    await client.config_set("maxmemory", "1")
    try:
        for _ in range(2):
            with pytest.raises(Transient):
                await log.append(events(2))
    finally:
        await client.config_set("maxmemory", "0")
    await log.append(events(2))
    assert await told(log) == [1, 2]


async def test_what_is_long_written_is_not_written_again(make_client, redis_url, monkeypatch):
    client = make_client(redis_url)
    log = RedisEventLog(client)
    now_s = [100.0]
    monkeypatch.setattr(redis_streams, "monotonic_s", lambda: now_s[0])
    await log.append(events(1))
    now_s[0] += UNSETTLED_S + 1.0
    await log.append(events(2))
    await client.flushall()
    await log.append(events(3))
    assert await told(log) == [2, 3]


async def test_what_was_trimmed_is_not_lost(make_client, redis_url):
    client = make_client(redis_url)
    log, other = RedisEventLog(client, max_entries=1), RedisEventLog(client, max_entries=1)
    await log.append(events(1))
    await other.append(events(*range(2, 402)))
    assert 1 not in await told(other)
    await log.append(events(402))
    assert 1 not in await told(log)
