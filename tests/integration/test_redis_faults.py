"""What the Redis adapters do when the server is away, full, empty again or another thing."""

from __future__ import annotations

import asyncio
import os
import signal
import time

import pytest

from adapters.redis_client import connect, redact
from adapters.redis_decisions import RedisDecisionJournal
from adapters.redis_events import RedisEventLog
from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_lease import RedisLease
from adapters.redis_mailbox import to_controller, to_gateways
from adapters.redis_stores import RedisControlStore, RedisSnapshotStore
from contracts.errors import Invalid, Permanent, Transient
from contracts.events import NodeLost
from contracts.ids import ModelId, NodeId
from contracts.messages import SettingsChanged
from contracts.routing import ModelRoute, RoutingTable
from contracts.world import Mode, Residency

pytestmark = pytest.mark.integration


def event(number: int) -> NodeLost:
    return NodeLost(event_id=f"e{number}", at_s=0.0, source="t", node=NodeId("n"), error="x" * 100)


async def test_a_server_that_is_away_is_transient_within_two_seconds(make_client, start_redis):
    server = start_redis()
    client = make_client(server.url)
    log = RedisEventLog(client)
    await log.append((event(1),))
    server.kill()
    for call in (
        log.append((event(2),)),
        log.read_after("0", count=1, block_s=1.0),
        to_controller(client).send(SettingsChanged(at_s=0.0)),
        RedisForecastStore(client).get_all(),
        RedisDecisionJournal(client).newest(limit=1),
        RedisControlStore(client).set_mode(Mode.ACTIVE),
        RedisSnapshotStore(client).world(),
        RedisLease(client).acquire("o", now_s=0.0, lease_s=1.0),
    ):
        started_s = time.monotonic()
        with pytest.raises(Transient):
            await call
        assert time.monotonic() - started_s < 2.5


async def test_all_goes_on_by_itself_when_an_emptied_server_comes_back(make_client, start_redis):
    server = start_redis()
    client = make_client(server.url)
    log = RedisEventLog(client)
    await log.append((event(1),))
    lease = RedisLease(client)
    token = await lease.acquire("o", now_s=1000.0, lease_s=10.0)
    server.kill()
    server.start()
    await log.append((event(2),))
    entries = await log.read_after("0", count=10)
    assert [entry.value for entry in entries] == [event(1), event(2)]
    later = await lease.acquire("o", now_s=1005.0, lease_s=10.0)
    assert token is not None
    assert later is not None
    assert later > token


async def test_a_log_that_is_flushed_away_under_a_waiting_reader_goes_on(make_client, redis_url):
    client = make_client(redis_url)
    log = RedisEventLog(client)
    await log.append((event(1),))
    place = await log.last_id()
    reading = asyncio.create_task(log.read_after(place, count=10, block_s=5.0))
    await asyncio.sleep(0.1)
    await client.flushall()
    await asyncio.sleep(0.1)
    await RedisEventLog(client).append((event(2),))
    async with asyncio.timeout(3.0):
        (entry,) = await reading
    assert entry.value == event(2)


async def test_a_blocking_read_of_five_seconds_is_not_cut_by_the_socket(make_client, redis_url):
    started_s = time.monotonic()
    place, messages = await to_controller(make_client(redis_url)).receive("$", block_s=30.0)
    assert (place, messages) == ("0", ())
    assert 4.9 < time.monotonic() - started_s < 6.5


async def test_a_full_server_takes_no_batch_by_halves(make_client, start_redis):
    server = start_redis(**{"maxmemory": "3mb", "maxmemory-policy": "noeviction"})
    client = make_client(server.url)
    log = RedisEventLog(client)
    batch = tuple(event(number) for number in range(500))
    with pytest.raises(Transient, match="OutOfMemory"):
        await _append_for_ever(log, batch)
    assert await client.xlen("headstart:events") % 500 == 0
    assert len(await log.read_after("0", count=10)) == 10


async def _append_for_ever(log: RedisEventLog, batch: tuple[NodeLost, ...]) -> None:
    while True:
        await log.append(batch)


async def test_a_read_only_replica_is_transient(make_client, start_redis):
    server = start_redis(replicaof="127.0.0.1 1")
    with pytest.raises(Transient):
        await RedisControlStore(make_client(server.url)).set_mode(Mode.ACTIVE)


async def test_a_wrong_password_and_a_foreign_key_are_permanent(make_client, start_redis):
    server = start_redis(requirepass="secret")
    with pytest.raises(Permanent):
        await RedisControlStore(make_client(server.url)).mode()
    client = make_client(server.url.replace("unix://", "unix://:secret@"))
    await client.set("headstart:slas", "text")
    with pytest.raises(Permanent, match="WRONGTYPE"):
        await RedisControlStore(client).slas()


async def test_a_server_that_hangs_is_transient_after_one_socket_timeout(
    make_client, start_redis, monkeypatch
):
    monkeypatch.setattr("adapters.redis_client._SOCKET_TIMEOUT_S", 0.3)
    server = start_redis()
    store = RedisControlStore(make_client(server.url))
    assert await store.mode() is None
    os.kill(server.process.pid, signal.SIGSTOP)
    started_s = time.monotonic()
    with pytest.raises(Transient):
        await store.mode()
    assert time.monotonic() - started_s < 1.5
    os.kill(server.process.pid, signal.SIGCONT)
    assert await store.mode() is None


async def test_damaged_values_are_counted_and_missing(make_client, redis_url):
    client = make_client(redis_url)
    for key, name in (("headstart:slas", "a"), ("headstart:baselines", "lru")):
        await client.hset(key, name, b'{"v":"?"}')
    await client.hset("headstart:forecasts", "a", b"{")
    await client.xadd("headstart:forecasts:updates", {"r": b"?"})
    await client.set("headstart:mode", "turbo")
    await client.set("headstart:world", b"{}")
    await client.set("headstart:routing", b"{}")
    await client.xadd("headstart:to-controller", {"r": b"{}"})
    await client.xadd("headstart:decisions", {"r": b"{}"})
    control, snapshots = RedisControlStore(client), RedisSnapshotStore(client)
    forecasts, journal = RedisForecastStore(client), RedisDecisionJournal(client)
    mailbox = to_controller(client)
    assert await control.slas() == {}
    assert await control.mode() is None
    assert control.skipped == 2
    assert await snapshots.world() is None
    assert await snapshots.routing() is None
    assert await snapshots.baselines() == {}
    assert snapshots.skipped == 3
    assert await forecasts.get(ModelId("a")) is None
    assert (await forecasts.updates("0", block_s=0.0))[1] == ()
    assert forecasts.skipped == 2
    assert (await mailbox.receive("0", block_s=0.0))[1] == ()
    assert mailbox.skipped == 1
    assert await journal.newest(limit=5) == ()
    assert journal.skipped == 1


async def test_large_routing_tables_do_not_fill_the_server(make_client, redis_url):
    client = make_client(redis_url)
    mailbox = to_gateways(client)
    models = [ModelId(f"organisation/model-{number}") for number in range(1000)]
    table = RoutingTable(
        token=1,
        made_at_s=0.0,
        mode=Mode.ACTIVE,
        models={
            model: ModelRoute(model=model, node=NodeId("n"), residency=Residency.COLD)
            for model in models
        },
    )
    for _ in range(200):
        await mailbox.send(table)
    assert 64 <= await client.xlen("headstart:to-gateways") < 120
    assert await client.memory_usage("headstart:to-gateways") < 32 * 1024**2
    _, tables = await mailbox.receive("0", block_s=0.0)
    assert tables[-1] == table


@pytest.mark.case("P112")
async def test_a_reader_that_dies_leaves_nothing_in_the_server(make_client, redis_url):
    client = make_client(redis_url)
    log = RedisEventLog(client, max_entries=100)
    for _ in range(3):
        await log.append(tuple(event(number) for number in range(1000)))
        assert await log.read_after("0", count=1000)
    assert await client.xinfo_groups("headstart:events") == []
    assert await client.xlen("headstart:events") <= 250


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "redis://host:port/0"])
def test_a_url_that_is_none_says_what_to_write(url: str):
    with pytest.raises(Invalid, match="redis://"):
        connect(url)


def test_a_password_is_never_repeated():
    with pytest.raises(Invalid) as refused:
        connect("redis://user:geheim@host:port/0")
    assert "geheim" not in str(refused.value)
    assert redact("redis://:geheim@host:1/0?password=geheim") == "redis://:***@host:1/0"
    assert redact("unix:///run/redis.sock") == "unix:///run/redis.sock"
