"""The controller's and the gateway's ways to instances of a name."""

from __future__ import annotations

from dataclasses import replace

from adapters.localai_doors import LocalAIDoors
from adapters.localai_fleet import LocalAIFleet
from contracts.config import GatewayConfig, NodeConfig
from contracts.departed import Departed
from contracts.ids import ModelId, NodeId
from contracts.instances import instance_id
from simulator.clock import VirtualClock

NAME = "http://localai:8081"
A, B = "10.0.0.1", "fd00::2"
ONE, TWO = instance_id(A), instance_id(B)


def at(address: str, **fields) -> NodeConfig:
    return NodeConfig(
        node=instance_id(address), url=f"http://{address}:8081", behind=NAME, api_key="k", **fields
    )


class Site:
    def __init__(self, *nodes: NodeConfig) -> None:
        self.clock = VirtualClock(0.0)
        self.seen: list[NodeConfig] = []
        self.doors: LocalAIDoors[str] = LocalAIDoors(
            nodes,
            self.clock,
            self._sight,
            resolve=lambda _host, _port: [A, B],
            chance=lambda: 1.0,
        )

    def _sight(self, node: NodeConfig) -> str:
        self.seen.append(node)
        return node.url


async def test_the_ways_come_with_an_instance_and_go_with_it(tmp_path):
    site = Site(at(A, models_path=str(tmp_path), accelerator="cpu"))
    doors = site.doors
    assert doors.are_moving
    assert doors.found_at_start == {ONE: A}
    doors.open(TWO, B)
    doors.open(TWO, B)
    made = site.seen[-1]
    assert (made.node, made.url, made.primary, made.accelerator, made.api_key) == (
        TWO, "http://[fd00::2]:8081", False, "cpu", "k",
    )  # fmt: skip
    assert len(site.seen) == 2
    for ways in (doors.servers, doors.files, doors.sights, doors.weights):
        assert set(ways) == {ONE, TWO}
    assert set(doors.opened) == {ONE, TWO}
    doors.close(ONE)
    doors.close(ONE)
    for ways in (doors.servers, doors.files, doors.sights, doors.weights):
        assert set(ways) == {TWO}
    assert isinstance(doors.servers[ONE], Departed)
    assert await doors.read_profile(ONE, ModelId("m")) is None
    await doors.aclose()


async def test_looks_are_told_to_all_instances_and_come_a_little_earlier_or_later():
    site = Site(at(A))
    assert await site.doors.look() == (A, B)
    site.doors.note_look(0.25)
    site.doors.note_look(None)
    assert site.doors._servers[ONE]._health.discovery_s == 0.25
    assert site.doors.jitter() == 1.1
    await site.doors.aclose()


async def test_where_no_name_stands_for_several_nothing_opens():
    site = Site(NodeConfig(node=NodeId("one"), url="http://one"))
    assert not site.doors.are_moving
    site.doors.open(ONE, A)
    assert (set(site.doors.servers), site.doors.opened) == ({NodeId("one")}, ())
    site.doors.readdress((NodeConfig(node=NodeId("one"), url="http://other"),))
    assert site.doors._nodes[NodeId("one")].url == "http://other"
    await site.doors.aclose()


async def test_another_key_is_shown_to_all_and_one_is_at_the_name_itself():
    site = Site(replace(at(A), node=NodeId("localai"), url=NAME))
    assert site.doors.found_at_start == {NodeId("localai"): ""}
    site.doors.open(ONE, A)
    # What a new look at the name finds is another matter than the key that holds for it.
    site.doors.readdress((replace(at(B), api_key="new"),))
    assert {name: (one.url, one.api_key) for name, one in site.doors._nodes.items()} == {
        NodeId("localai"): (NAME, "new"), ONE: (f"http://{A}:8081", "new"),
    }  # fmt: skip
    site.doors.open(TWO, B)
    assert site.seen[-1].api_key == "new"
    await site.doors.aclose()


async def test_a_gateways_ways_come_and_go_as_well():
    first = at(A)
    fleet = LocalAIFleet(GatewayConfig(nodes=(first,)), VirtualClock(0.0))
    second = fleet.at(first, TWO, B)
    assert (second.url, second.node, second.behind) == ("http://[fd00::2]:8081", TWO, NAME)
    fleet.open(second)
    fleet.open(second)
    assert set(fleet.upstreams) == set(fleet.servers) == {ONE, TWO}
    before = fleet.upstreams[TWO]
    # Another look at the name, another key, another limit: the same LocalAIs.
    changed = GatewayConfig(nodes=(replace(at("10.0.0.9"), api_key="new"),), connect_timeout_s=1.0)
    assert fleet.readdress(changed)
    assert fleet.upstreams[TWO] is before
    assert {one.api_key for one in fleet._nodes.values()} == {"new"}
    await fleet.shut(ONE)
    await fleet.shut(ONE)
    assert set(fleet.upstreams) == set(fleet.servers) == {TWO}
    await fleet.close()
    await before.close()
