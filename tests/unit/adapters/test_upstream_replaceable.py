"""A way to LocalAI that is replaced while it is used."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from adapters.localai_fleet import LocalAIFleet
from adapters.upstream_replaceable import MAX_RETIRED, ReplaceableUpstream
from contracts.config import GatewayConfig, NodeConfig
from contracts.errors import Invalid
from contracts.ids import NodeId
from contracts.upstream import OutgoingRequest
from simulator.memory_ports import VirtualClock

REQUEST = OutgoingRequest(method="GET", target=b"/", headers=())


class Way:
    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False

    async def send(self, request: OutgoingRequest) -> Any:
        return self.name

    async def open_tunnel(self) -> Any:
        return f"tunnel-{self.name}"

    async def close(self) -> None:
        self.closed = True


async def test_what_comes_goes_to_the_new_one_and_the_old_one_stays_open():
    old, new = Way("old"), Way("new")
    way = ReplaceableUpstream(old)
    said: list[object] = [await way.send(REQUEST)]
    way.replace(new)
    said += [await way.send(REQUEST), await way.open_tunnel()]
    assert said == ["old", "new", "tunnel-new"]
    assert [old.closed, new.closed] == [False, False]
    await way.close()
    assert [old.closed, new.closed] == [True, True]


async def test_former_ones_are_bounded():
    ways = [Way(str(number)) for number in range(MAX_RETIRED + 3)]
    way = ReplaceableUpstream(ways[0])
    for one in ways[1:]:
        way.replace(one)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [one.closed for one in ways] == [True] * 2 + [False] * (MAX_RETIRED + 1)


def fleet_of(*nodes: NodeConfig) -> GatewayConfig:
    return GatewayConfig(nodes=nodes)


async def test_the_same_nodes_may_move_and_others_wait_for_a_restart():
    before = NodeConfig(node=NodeId("a"), url="http://one")
    fleet = LocalAIFleet(fleet_of(before), VirtualClock())
    moved = NodeConfig(node=NodeId("a"), url="http://two", api_key="k")
    assert fleet.readdress(fleet_of(moved))
    assert fleet.servers[NodeId("a")]._calls._url == "http://two"
    assert fleet.servers[NodeId("a")]._calls._headers["Authorization"] == "Bearer k"
    for others in (
        fleet_of(NodeConfig(node=NodeId("b"), url="http://two")),
        fleet_of(moved, NodeConfig(node=NodeId("b"), url="http://b")),
        fleet_of(NodeConfig(node=NodeId("a"), url="http://two", accelerator="cpu")),
        fleet_of(),
    ):
        assert not fleet.readdress(others)
    with pytest.raises(Invalid):
        fleet.readdress(fleet_of(NodeConfig(node=NodeId("a"), url="ftp://x")))
    assert fleet.servers[NodeId("a")]._calls._url == "http://two", "a refusal changes nothing"
    await fleet.close()
