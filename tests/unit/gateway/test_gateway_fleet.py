"""Who is there for a gateway, as tables tell of instances that come and go."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from api.gateway import fleet as fleets
from api.gateway.fleet import LONGEST_S, QUIET_S, Fleet
from api.gateway.live import LiveConfig
from api.gateway.problems import Problem
from api.gateway.proxy import Relay
from contracts.config import GatewayConfig, NodeConfig
from contracts.errors import Transient
from contracts.ids import NodeId
from contracts.instances import instance_id
from contracts.ports import ModelServer
from contracts.routing import NodeRoute, RoutingTable
from contracts.upstream import Upstream
from contracts.world import Mode
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryModelServer

NAME = "http://localai:8081"
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


def node(name: str, url: str, **fields) -> NodeConfig:
    return NodeConfig(node=NodeId(name), url=url, **fields)


def instance(address: str, *, primary: bool = False) -> NodeConfig:
    url = f"http://{address}:8081"
    return node(instance_id(address), url, behind=NAME, primary=primary, api_key="k")


def table(*addresses: str, primary: str | None = None, others: tuple[str, ...] = ()):
    nodes = {
        instance_id(one): NodeRoute(node=instance_id(one), alive=True, free_bytes=None, address=one)
        for one in addresses
    }
    for name in others:
        nodes[NodeId(name)] = NodeRoute(node=NodeId(name), alive=True, free_bytes=None)
    return RoutingTable(
        token=1,
        made_at_s=0.0,
        mode=Mode.ACTIVE,
        nodes=nodes,
        primary=None if primary is None else instance_id(primary),
    )


class Doors:
    """Opens and closes them in the mappings, and says in which order."""

    def __init__(self, clock: VirtualClock, nodes: tuple[NodeConfig, ...]) -> None:
        self.clock = clock
        self.servers: dict[NodeId, ModelServer] = {}
        self.log: list[str] = []
        for one in nodes:
            self.open(one)
        self.log.clear()

    def at(self, template: NodeConfig, node: NodeId, address: str) -> NodeConfig:
        return replace(template, node=node, url=f"http://{address}:8081", primary=False)

    def open(self, node: NodeConfig) -> None:
        self.servers.setdefault(node.node, MemoryModelServer(self.clock, {}))
        self.log.append(f"+{node.url}")

    async def shut(self, node: NodeId) -> None:
        del self.servers[node]
        self.log.append(f"-{node}")


class Site:
    def __init__(self, *nodes: NodeConfig, moves: bool = True) -> None:
        self.clock = VirtualClock(0.0)
        self.doors = Doors(self.clock, nodes)
        self.live = LiveConfig(GatewayConfig(nodes=nodes))
        doors = self.doors if moves else None
        self.fleet = Fleet(self.live, self.doors.servers, doors, self.clock)
        self.flying: dict[NodeId, int] = {}
        self.fleet.in_flight = lambda name: self.flying.get(name, 0)
        self.told: list[NodeId] = []
        self.fleet.on_left.append(self.told.append)

    def addresses(self) -> set[str]:
        return {name.removeprefix("localai-") for name in self.fleet.nodes}


@asynccontextmanager
async def site_of(*nodes: NodeConfig, **how):
    site = Site(*nodes, **how)
    yield site
    await site.fleet.close()


async def test_instances_come_with_the_table_and_go_with_it():
    async with site_of(instance(A, primary=True)) as site:
        site.fleet.follow(table(A, B))
        assert site.addresses() == {A, B}
        joined = site.fleet.nodes[instance_id(B)]
        assert (joined.url, joined.behind, joined.api_key, joined.primary) == (
            f"http://{B}:8081", NAME, "k", False,
        )  # fmt: skip
        assert site.fleet.servers[instance_id(B)] is site.doors.servers[instance_id(B)]
        site.fleet.follow(table(B, primary=B))
        assert (site.addresses(), site.fleet.primary) == ({B}, instance_id(B))
        assert (site.fleet.joined, site.fleet.left) == (1, 1)
        with pytest.raises(Transient, match="has left"):
            await site.fleet.servers[instance_id(A)].report()


async def test_what_runs_on_one_that_left_ends_before_its_ways_are_closed():
    async with site_of(instance(A), instance(B)) as site:
        site.flying[instance_id(A)] = 1
        site.fleet.follow(table(B))
        assert site.told == [instance_id(A)]
        await site.clock.advance(QUIET_S + 100.0)
        assert site.doors.log == []
        site.flying.clear()
        await site.clock.advance(1.0)
        assert site.doors.log == [f"-{instance_id(A)}"]
        assert site.told == [instance_id(A)] * 2


async def test_what_never_ends_is_cut_at_last():
    async with site_of(instance(A), instance(B)) as site:
        site.flying[instance_id(A)] = 1
        site.fleet.follow(table(B))
        await site.clock.advance(LONGEST_S + QUIET_S)
        assert site.doors.log == [f"-{instance_id(A)}"]


async def test_one_that_comes_back_meanwhile_is_not_closed():
    async with site_of(instance(A), instance(B)) as site:
        site.fleet.follow(table(B))
        site.fleet.follow(table(A, B))
        await site.clock.advance(2 * QUIET_S)
        assert site.doors.log == [f"+http://{A}:8081"]
        assert site.addresses() == {A, B}


async def test_a_table_without_instances_leaves_them_as_they_are():
    """Of a controller that knows no name, or before the first look."""
    async with site_of(instance(A), instance(B)) as site:
        site.fleet.follow(table(others=("one",)))
        assert site.addresses() == {A, B}


async def test_the_name_itself_stays_for_as_long_as_the_table_has_it():
    async with site_of(node("localai", NAME, behind=NAME)) as site:
        site.fleet.follow(table(A, others=("localai",)))
        assert set(site.fleet.nodes) == {"localai", instance_id(A)}
        site.fleet.follow(table(A))
        assert set(site.fleet.nodes) == {instance_id(A)}
        assert site.fleet.primary == instance_id(A)


async def test_nodes_that_are_configured_stay_whatever_a_table_says():
    async with site_of(node("one", "http://one"), node("two", "http://two")) as site:
        assert not site.fleet.is_moving
        site.fleet.follow(table(A, B, primary=A))
        assert set(site.fleet.nodes) == {"one", "two"}
        assert site.fleet.primary == "one"
    async with site_of(instance(A), moves=False) as site:
        site.fleet.follow(table(B))
        assert site.addresses() == {A}
        assert not site.fleet.is_moving


async def test_those_beyond_the_bound_are_left_out_and_counted(monkeypatch):
    monkeypatch.setattr(fleets, "MAX_INSTANCES", 2)
    async with site_of(instance(A)) as site:
        assert site.fleet.is_moving
        site.fleet.follow(table(A, B, C))
        assert (site.addresses(), site.fleet.left_out) == ({A, B}, 1)


async def test_a_configuration_that_changes_is_that_of_nodes_that_are_there():
    async with site_of(instance(A)) as site:
        changed = replace(instance(A), api_key="other")
        site.fleet.reload(GatewayConfig(nodes=(changed, instance(B))))
        assert site.fleet.nodes == {changed.node: changed}


async def test_the_relay_goes_where_the_fleet_is_with_the_names_key():
    async with site_of(instance(A, primary=True)) as site:
        upstreams: dict[NodeId, Upstream] = {}
        relay = Relay(site.live, upstreams, site.clock, site.fleet)
        site.fleet.follow(table(A, B))
        found = relay.node_for(instance_id(B))
        assert found.node == instance_id(B)
        site.live.replace(replace(site.live.now, keys=("ours",)))
        assert relay.key_for(found) == "k"
        assert relay.key_for(node("stranger", "http://x")) is None
        site.fleet.follow(table(A))
        assert relay.node_for(instance_id(B)).node == instance_id(A)
        with pytest.raises(Problem, match="has left"):
            relay.upstream_of(found)


async def test_nothing_waits_for_those_that_left_when_the_gateway_stops():
    async with site_of(instance(A), instance(B)) as site:
        site.flying[instance_id(A)] = 1
        site.fleet.follow(table(B))
    assert len(asyncio.all_tasks()) == 1
