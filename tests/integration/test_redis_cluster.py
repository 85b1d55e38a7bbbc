"""A Redis Cluster whose slots move and whose nodes die, under what uses it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from urllib.parse import quote

import pytest
import redis.asyncio

from adapters.clock import ScaledClock
from adapters.redis_client import cluster_layout, connect, each_server
from adapters.redis_events import RedisEventLog
from adapters.redis_lease import RedisLease
from adapters.redis_profiles import RedisProfileStore
from adapters.redis_stores import RedisControlStore, RedisSnapshotStore
from api.gateway.telemetry import Telemetry
from contracts.errors import NotLeader, Transient
from contracts.events import NodeLost
from contracts.ids import ModelId, NodeId
from contracts.profiles import MeasuredProfile, Measures
from contracts.redis_keys import EVENTS, LEASE, LEASE_TOKEN, PROFILES, tagged
from contracts.routing import RoutingTable
from contracts.world import Mode
from tests.redis_cluster import ClusterServer, PrivateCluster, private_cluster
from tests.tls_fronts import Fronts, make_authority
from tests.waiting import until

pytestmark = pytest.mark.integration

LEASE_S = 2.0


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[redis.asyncio.Redis]:
    client = connect(url)
    try:
        yield client
    finally:
        await client.aclose()


def event(number: int) -> NodeLost:
    return NodeLost(
        event_id=f"e{number}", at_s=float(number), source="test", node=NodeId("n"), error="gone"
    )


def profile(name: str) -> MeasuredProfile:
    return MeasuredProfile(
        model=ModelId(name), measures=(Measures(node=NodeId("n"), revision="r", at_s=1.0),)
    )


def table(token: int) -> RoutingTable:
    return RoutingTable(token=token, made_at_s=1.0, mode=Mode.ACTIVE)


async def numbers_in(log: RedisEventLog) -> list[str]:
    return [entry.value.event_id for entry in await log.read_after("0", count=100_000)]


class Move:
    """One slot on its way from the node that has it to another one."""

    def __init__(self, cluster: PrivateCluster, key: str) -> None:
        self.key = tagged(key)
        self.source = cluster.owner(self.key)
        self.target = next(one for one in cluster.primaries if one is not self.source)
        self._cluster = cluster
        self._slot = self.source.ask("CLUSTER KEYSLOT", self.key)

    def begin(self) -> None:
        self.target.ask("CLUSTER SETSLOT", self._slot, "IMPORTING", self.source.node_id)
        self.source.ask("CLUSTER SETSLOT", self._slot, "MIGRATING", self.target.node_id)

    def carry(self) -> None:
        """All keys of the slot."""
        for key in self.source.ask("CLUSTER GETKEYSINSLOT", self._slot, 100):
            self.source.ask("MIGRATE", "127.0.0.1", self.target.port, key, 0, 5000)

    def end(self) -> None:
        for one in (self.target, self.source, *self._cluster.primaries):
            one.ask("CLUSTER SETSLOT", self._slot, "NODE", self.target.node_id)


class Traffic:
    """Somebody writes events and somebody reads them, until told to stop."""

    def __init__(self, writes: redis.asyncio.Redis, reads: redis.asyncio.Redis) -> None:
        self.log, self._reader = RedisEventLog(writes), RedisEventLog(reads)
        self.written = 0
        self.seen: list[str] = []
        self.is_stopped = self.is_written = False

    async def write(self) -> None:
        while not self.is_stopped:
            await self.log.append((event(self.written), event(self.written + 1)))
            self.written += 2
        self.is_written = True

    async def look(self) -> None:
        """Over more than one connection to each node, as a gateway does."""
        while not self.is_stopped:
            await asyncio.gather(*(self.log.last_id() for _ in range(4)))

    async def read(self) -> None:
        place = "0"
        while len(self.seen) < self.written or not self.is_written:
            found = await self._reader.read_after(place, count=500, block_s=0.05)
            self.seen += [entry.value.event_id for entry in found]
            place = found[-1].entry_id if found else place


async def test_no_event_is_lost_while_its_slot_moves(redis_cluster: PrivateCluster):
    async with connected(redis_cluster.url) as writes, connected(redis_cluster.url) as reads:
        traffic = Traffic(writes, reads)

        async def move() -> None:
            for _ in range(3):
                moved = Move(redis_cluster, EVENTS)
                for step in (moved.begin, moved.carry, moved.end):
                    enough = traffic.written + 20
                    await asyncio.to_thread(step)
                    await until(partial(lambda least: traffic.written >= least, enough))
            traffic.is_stopped = True

        async with asyncio.TaskGroup() as group:
            for task in (traffic.write, traffic.look, traffic.read, move):
                group.create_task(task())
        told = [f"e{number}" for number in range(traffic.written)]
        assert await numbers_in(traffic.log) == told
    assert traffic.seen == told


async def test_a_transaction_waits_for_its_slot_and_follows_it(redis_cluster: PrivateCluster):
    profiles = tuple(profile(name) for name in "ab")
    async with connected(redis_cluster.url) as client:
        store = RedisProfileStore(client)
        move = Move(redis_cluster, PROFILES)
        move.begin()
        with pytest.raises(Transient, match="store profiles"):
            await store.put(profiles)
        putting = asyncio.create_task(store.put(profiles))
        move.end()
        await putting
        assert set(await store.get_all()) == {"a", "b"}
        assert move.target.ask("HLEN", move.key) == 2
        assert move.source.ask("CLUSTER COUNTKEYSINSLOT", move._slot) == 0


async def test_what_has_no_key_is_asked_of_all_or_of_one(redis_cluster: PrivateCluster):
    async with connected(redis_cluster.url) as client:
        servers = await each_server(client)
        assert len(servers) == 3
        assert all([await server.ping() for server in servers.values()])
        names = [f"headstart:{{{number}}}:x" for number in range(50)]
        for name in names:
            await client.set(name, 1)
        assert len(await client.client_list()) >= 3
        assert {key.decode() async for key in client.scan_iter(match="headstart:*")} == set(names)
        assert await client.unlink(*names) == 50
        layout = await cluster_layout(client)
        assert layout is not None
        assert (sorted(layout.replicas.values()), layout.unserved_slots) == ([0, 0, 0], 0)


@pytest.mark.case("P117")
async def test_tls_and_a_user_who_may_do_no_more_than_needed(
    redis_cluster: PrivateCluster, tmp_path: Path
):
    make_authority(tmp_path)
    fronts = Fronts(tmp_path)
    password = "p@ss%word"
    rules = (
        "on", f">{password}", "resetkeys", "~headstart:*", "+@all", "-@admin", "-@dangerous",
        "+info", "+cluster|slots",
    )  # fmt: skip
    try:
        for server in redis_cluster.servers:
            server.ask("ACL SETUSER", "stack", *rules)
            port = fronts.front_of(server.socket)
            server.ask("CONFIG SET", "cluster-announce-port", port)
        await until(lambda: redis_cluster.told_ports() == {*fronts.ports})
        places = ",".join(f"127.0.0.1:{port}" for port in fronts.ports)
        address = f"rediss+cluster://stack:{quote(password)}@{places}"
        async with connected(f"{address}?ssl_ca_certs={tmp_path / 'cert.pem'}") as client:
            log = RedisEventLog(client)
            await log.append((event(1),))
            await RedisProfileStore(client).put((profile("a"),))
            assert await RedisLease(client).acquire("one", now_s=1.0, lease_s=9.0)
            assert await numbers_in(log) == ["e1"]
        async with connected(address) as client:
            with pytest.raises(Transient, match="certificate verify failed"):
                await RedisEventLog(client).append((event(2),))
    finally:
        fronts.close()
        for server in redis_cluster.servers:
            server.ask("CONFIG SET", "cluster-announce-port", 0)
            server.ask("ACL DELUSER", "stack")
        await until(
            lambda: redis_cluster.told_ports() == {one.port for one in redis_cluster.servers}
        )


async def test_a_password_that_is_wrong_is_no_outage(redis_cluster: PrivateCluster):
    url = redis_cluster.url.replace("://", "://nobody:secret@")
    async with connected(url) as client:
        with pytest.raises(Exception, match="invalid username-password") as caught:
            await RedisControlStore(client).mode()
    assert type(caught.value).__name__ == "Permanent"
    assert "secret" not in str(caught.value)


@pytest.fixture(scope="module")
def replicated() -> Iterator[PrivateCluster]:
    """Replicas of the nodes that have the events and the lease."""
    with private_cluster(replicas_of=(1, 2)) as cluster:
        yield cluster


async def _until_promoted(cluster: PrivateCluster, replica: ClusterServer, key: str) -> None:
    await until(lambda: cluster.owner(tagged(key)) is replica)


@pytest.mark.case("P116")
async def test_a_gateway_goes_on_when_the_node_of_the_events_dies(replicated: PrivateCluster):
    primary = replicated.owner(tagged(EVENTS))
    replica = replicated.replica_of(primary)
    async with connected(replicated.url) as client:
        log, clock = RedisEventLog(client), ScaledClock(1.0)
        telemetry = Telemetry(log, clock, "g")
        running = asyncio.create_task(telemetry.run())
        for number in range(100):
            telemetry.emit(event(number))
        await until(lambda: telemetry.written == 100)
        assert primary.ask("WAIT", 1, 5000) == 1
        primary.kill()
        for number in range(100, 200):
            telemetry.emit(event(number))
            await asyncio.sleep(0.002)
        assert telemetry.pending
        await _until_promoted(replicated, replica, EVENTS)
        await until(lambda: telemetry.written == 200)
        running.cancel()
        assert telemetry.dropped == 0
        assert await numbers_in(log) == [f"e{number}" for number in range(200)]


async def test_a_lease_that_a_failover_forgot_is_nobodys_twice(replicated: PrivateCluster):
    """The second leader's lease and table are acknowledged, and die with their node."""
    primary = replicated.owner(tagged(LEASE))
    assert replicated.owner(tagged(LEASE_TOKEN)) is primary
    replica = replicated.replica_of(primary)
    now_s = ScaledClock(1.0).now_s()
    async with connected(replicated.url) as client:
        lease, snapshots = RedisLease(client), RedisSnapshotStore(client)
        first = await lease.acquire("first", now_s=now_s, lease_s=LEASE_S)
        assert first is not None
        await snapshots.put_routing(table(first))
        assert primary.ask("WAIT", 1, 5000) == 1
        os.kill(replica.process.pid, signal.SIGSTOP)
        primary.ask("CLIENT KILL", "TYPE", "replica")
        later_s = now_s + LEASE_S + 1.0
        second = await lease.acquire("second", now_s=later_s, lease_s=LEASE_S)
        assert second is not None
        assert second > first
        primary.kill()
        os.kill(replica.process.pid, signal.SIGCONT)
        await _until_promoted(replicated, replica, LEASE)

        # The promoted node knows the first one's lease alone, which is over.
        again = await lease.acquire("second", now_s=later_s + 1.0, lease_s=LEASE_S)
        assert again is not None
        assert again > second
        assert await lease.acquire("first", now_s=later_s + 1.1, lease_s=LEASE_S) is None
        await snapshots.put_routing(table(again))
        with pytest.raises(NotLeader):
            await snapshots.put_routing(table(first))
