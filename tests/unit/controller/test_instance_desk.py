"""Doors that open and close as instances come and go, over terms of leadership."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from contracts.departed import Departed, Servers
from contracts.errors import Transient
from contracts.ids import ModelId, NodeId
from contracts.instances import DiscoveryConfig, Instance, instance_id
from contracts.ports import NodeReport
from contracts.world import NodeStatus, WorldSnapshot
from controller.fold import fold
from controller.instance_desk import InstanceDesk
from controller.lookout import Lookout
from controller.lookout import posts as posts_of
from controller.membership import with_instances
from controller.observer import Observer
from controller.ports import Ports, nothing_declared
from controller.posts import Posts
from controller.stamps import Stamps
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryModelServer

A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"


class Doors:
    def __init__(self, *found: str) -> None:
        self.found: tuple[str, ...] | None = found
        self.found_at_start = {instance_id(address): address for address in found}
        self.opened: list[NodeId] = list(self.found_at_start)
        self.took_s: list[float | None] = []

    async def look(self) -> tuple[str, ...] | None:
        return self.found

    def note_look(self, took_s: float | None) -> None:
        self.took_s.append(took_s)

    def jitter(self) -> float:
        return 1.0

    def open(self, node: NodeId, address: str) -> None:
        assert node == instance_id(address)
        self.opened.append(node)

    def close(self, node: NodeId) -> None:
        self.opened.remove(node)


class Site:
    def __init__(self, doors: Doors | None, **config: Any) -> None:
        self.clock = VirtualClock(1_000.0)
        self.doors = doors
        self.world = WorldSnapshot(taken_at_s=1_000.0)
        self.said: list[tuple[str, str]] = []
        self.log: list[str] = []
        stamps = Stamps("c1", 1, self.clock)
        self.desk = InstanceDesk(
            cast(Ports, SimpleNamespace(doors=doors, clock=self.clock)),
            DiscoveryConfig(**config),
            world=lambda: self.world,
            emit=self._emit,
            stamp=stamps,
            decided=lambda made: self.said.extend((one.subject, one.reason) for one in made),
            seen=self._seen,
            opened=lambda node: self.log.append(f"+{node}"),
            closed=lambda node: self.log.append(f"-{node}"),
        )

    def _emit(self, event) -> None:
        self.world = fold(self.world, event)

    def _seen(self, instances) -> None:
        self.world = with_instances(self.world, instances)

    def answer(self, *addresses: str) -> None:
        nodes = {instance_id(one): NodeStatus(node=instance_id(one)) for one in addresses}
        alive = {name: replace(node, alive=True) for name, node in nodes.items()}
        self.world = replace(self.world, nodes={**self.world.nodes, **alive})

    @asynccontextmanager
    async def running(self):
        self.world = self.desk.resumed(self.world)
        task = asyncio.create_task(self.desk.run())
        await self.clock.advance(0.0)
        yield self
        task.cancel()
        await asyncio.wait({task})


def the(*addresses: str) -> set[NodeId]:
    return {instance_id(address) for address in addresses}


async def test_the_first_term_begins_with_those_that_were_found_at_the_start():
    async with Site(Doors(A, B)).running() as site:
        assert set(site.world.nodes) == set(site.world.instances) == the(A, B)
        assert (site.said, site.log) == ([], [])
        assert site.doors is not None
        assert site.doors.took_s == [0.0]


async def test_the_first_term_has_no_more_than_may_be():
    async with Site(Doors(A, B, C), most=2).running() as site:
        assert set(site.world.nodes) == set(site.world.instances) == the(A, B)
        assert site.doors is not None
        assert set(site.doors.opened) == the(A, B)
        assert site.log == [f"-{instance_id(C)}"]
        assert site.said == [("instances", "too_many_instances")]


async def test_who_comes_and_goes_has_its_door_opened_and_closed():
    doors = Doors(A)
    async with Site(doors, grace_s=20.0).running() as site:
        doors.found = (A, B)
        await site.clock.advance(5.0)
        assert set(doors.opened) == set(site.world.nodes) == the(A, B)
        site.answer(A, B)
        doors.found = (B,)
        await site.clock.advance(5.0)
        assert site.world.nodes[instance_id(A)].leaving
        await site.clock.advance(20.0)
        assert set(doors.opened) == set(site.world.nodes) == set(site.world.instances) == the(B)
        assert site.log == [f"+{instance_id(B)}", f"-{instance_id(A)}"]
        assert [reason for _, reason in site.said] == [
            "instance_found", "instance_missing", "instance_gone",
        ]  # fmt: skip


async def test_the_next_term_has_those_of_the_last_one():
    doors = Doors(A, B)
    site = Site(doors)
    site.world = replace(
        site.world,
        instances={
            instance_id(one): Instance(node=instance_id(one), address=one, joined_at_s=5.0)
            for one in (B, C)
        },
        nodes={instance_id(B): NodeStatus(node=instance_id(B), alive=True)},
    )
    async with site.running():
        assert set(doors.opened) == the(B, C) | the(A)  # A was opened anew by the first look
        assert site.log == [f"-{instance_id(A)}", f"+{instance_id(C)}", f"+{instance_id(A)}"]
        assert site.world.nodes[instance_id(B)].alive
        assert site.world.nodes[instance_id(C)].leaving


async def test_without_a_name_for_several_nobody_comes_or_goes():
    site = Site(None)
    gone = Instance(node=NodeId("x"), address=A, joined_at_s=0.0)
    site.world = replace(site.world, instances={gone.node: gone})
    assert site.desk.resumed(site.world).instances == {}
    await site.desk.run()


async def test_a_name_server_that_is_away_and_too_many_are_told_once():
    doors = Doors(A)
    with capture_logs() as logs:
        async with Site(doors, most=2).running() as site:
            for found in (None, None, (A,), (A, B, C), (A, B, C), None, (A, B, C), (A, B)):
                doors.found = found
                await site.clock.advance(5.0)
            assert doors.took_s[1:4] == [None, None, 0.0]
            assert site.said.count(("instances", "too_many_instances")) == 1
            site.desk.reconfigure(DiscoveryConfig(most=3))
            doors.found = (A, B, C)
            await site.clock.advance(5.0)
            assert set(doors.opened) == the(A, B, C)
    told = [line["event"] for line in logs if not line["event"].startswith("instance_")]
    assert told == [
        "instances_not_looked_up", "instances_looked_up_again",
        "too_many_instances", "instances_not_looked_up", "instances_looked_up_again",
        "all_instances_taken",
    ]  # fmt: skip


class TestPosts:
    @asynccontextmanager
    async def posts(self, *nodes: str):
        clock = VirtualClock(0.0)
        looks: list[str] = []

        def make(node: NodeId) -> Observer:
            return Observer(
                node,
                MemoryModelServer(clock, {}),
                clock=clock,
                poll_s=5.0,
                stamp=Stamps("c1", 1, clock),
                emit=lambda event: looks.append(str(getattr(event, "node", ""))),
                listed=lambda _catalogue: None,
            )

        posts = Posts([NodeId(node) for node in nodes], make)
        task = asyncio.create_task(posts.run())
        await clock.advance(0.0)
        yield posts, looks, clock
        task.cancel()
        await asyncio.wait({task})

    async def test_each_node_is_looked_at_from_when_it_comes_until_it_goes(self):
        async with self.posts("a") as (posts, looks, clock):
            assert looks == ["a"]
            posts.open(NodeId("b"))
            posts.open(NodeId("b"))
            await clock.advance(0.0)
            assert looks == ["a", "b"]
            posts.close(NodeId("a"))
            posts.close(NodeId("nobody"))
            await clock.advance(5.0)
            assert looks == ["a", "b", "b"]
            posts.look_now()
            posts.look_now(NodeId("a"))
            await clock.advance(0.0)
            assert looks == ["a", "b", "b", "b"]
            await posts.look(NodeId("a"))
            await posts.look(NodeId("b"))
            assert looks == ["a", "b", "b", "b", "b"]


@pytest.mark.parametrize("error", [None, Transient("its connection was closed")])
async def test_a_look_that_outlives_its_node_does_not_bring_it_back(error: Transient | None):
    clock, node, gate = VirtualClock(0.0), NodeId("n"), asyncio.Event()

    class Slow(MemoryModelServer):
        async def report(self) -> NodeReport:
            await gate.wait()
            if error is not None:
                raise error
            return await super().report()

    said: list[object] = []
    ports = SimpleNamespace(
        servers=Servers({node: Slow(clock, {})}), clock=clock, sights={}, declared=nothing_declared
    )
    lookout = Lookout(
        world=lambda: WorldSnapshot(taken_at_s=0.0),
        emit=said.append,
        stamp=Stamps("c1", 1, clock),
        decided=lambda _made: None,
    )
    posts = posts_of(
        cast(Ports, ports), lookout, poll_s=5.0, stamp=Stamps("c1", 1, clock), listed=said.append
    )
    first, second = asyncio.create_task(posts.run()), asyncio.create_task(posts.look(node))
    await clock.advance(0.0)
    posts.close(node)
    del ports.servers[node]
    gate.set()
    await second
    first.cancel()
    await asyncio.wait({first})
    assert said == []


async def test_a_node_that_has_left_answers_every_call_with_that():
    servers = Servers()
    gone = servers[NodeId("n")]
    assert isinstance(gone, Departed)
    assert NodeId("n") not in servers
    model = ModelId("m")
    for call in (
        gone.models(), gone.aliases(), gone.load(model), gone.unload(model), gone.is_busy(model),
        gone.report(), gone.facts(), gone.started_at_s(), gone.warm(model),
        gone.estimate_footprint_bytes(model),
    ):  # fmt: skip
        with pytest.raises(Transient, match="n has left"):
            await call
    clock = VirtualClock(0.0)
    server = MemoryModelServer(clock, {})
    servers[NodeId("n")] = server
    assert servers[NodeId("n")] is server
    assert isinstance(await server.report(), NodeReport)
