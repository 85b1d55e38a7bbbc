"""Who has which slot: what is asked of whom, and what stands when nobody answers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
import redis.asyncio
from redis.exceptions import ClusterCrossSlotError, ConnectionError, ResponseError  # noqa: A004

from adapters.redis_client import connect
from adapters.redis_cluster_map import Place, SlotMap

A, B, C, D = ("a", 1), ("b", 1), ("c", 1), ("d", 1)


class Node:
    """Tells what it is told to tell."""

    def __init__(self, nodes: Nodes, place: Place) -> None:
        self._nodes, self._place = nodes, place

    async def execute_command(self, *words: str) -> Any:
        assert words == ("CLUSTER SLOTS",)
        await asyncio.sleep(0)
        self._nodes.asked.append(self._place)
        told = self._nodes.told.get(self._place, ConnectionError("refused"))
        if isinstance(told, Exception):
            raise told
        return told

    async def aclose(self) -> None:
        self._nodes.closed.append(self._place)


class Nodes:
    def __init__(self, **told: Any) -> None:
        self.told: dict[Place, Any] = {(name, 1): said for name, said in told.items()}
        self.asked: list[Place] = []
        self.closed: list[Place] = []

    def map(self, *seeds: Place) -> SlotMap:
        def open_node(place: Place) -> redis.asyncio.Redis:
            return cast(redis.asyncio.Redis, Node(self, place))

        return SlotMap(seeds, open_node=open_node, open_asking=open_node)


def shard(first: int, last: int, *places: Place) -> list[Any]:
    return [first, last, *([host.encode(), port, b"id", []] for host, port in places)]


WHOLE = [shard(0, 8000, A, C), shard(8001, 16383, B)]


async def test_the_first_seed_that_answers_tells_of_all():
    nodes = Nodes(b=WHOLE)
    slots = nodes.map(A, B)
    assert (await slots.owner(8000), await slots.owner(8001)) == (A, B)
    assert await slots.shards() == {A: (C,), B: ()}
    assert await slots.primaries() == (A, B)
    assert await slots.unserved() == 0
    assert nodes.asked == [A, B]


async def test_who_does_not_know_its_own_name_is_where_it_was_asked():
    nodes = Nodes(a=[shard(0, 16383, ("", 7))])
    assert await nodes.map(A).owner(1) == ("a", 7)


async def test_a_slot_that_nobody_has_is_an_outage_of_its_own():
    slots = Nodes(a=[shard(0, 99, A)]).map(A)
    assert await slots.owner(99) == A
    with pytest.raises(ConnectionError, match="slot 100 of the cluster is served by no node"):
        await slots.owner(100)
    assert await slots.unserved() == 16284


async def test_of_many_who_found_the_same_fault_one_asks():
    nodes = Nodes(a=WHOLE)
    slots = nodes.map(A)
    await asyncio.gather(*(slots.owner(1) for _ in range(10)))
    assert nodes.asked == [A]
    for _ in range(3):
        slots.doubt(slots.version)
    await asyncio.gather(*(slots.owner(1) for _ in range(10)))
    assert nodes.asked == [A, A]
    slots.doubt(1)  # somebody who failed before the last look
    await slots.owner(1)
    assert nodes.asked == [A, A]


async def test_when_nobody_answers_any_more_what_was_known_stands():
    nodes = Nodes(a=WHOLE)
    slots = nodes.map(A)
    assert await slots.owner(9000) == B
    nodes.told.clear()
    slots.doubt(slots.version)
    assert await slots.owner(9000) == B
    assert set(nodes.asked) == {A, B, C}
    nodes.told[C] = [shard(0, 16383, C)]
    assert await slots.owner(9000) == C
    slots.doubt(slots.version)
    await slots.owner(1)
    assert nodes.asked[-1] == C


async def test_where_nobody_answers_one_asks_for_all_who_wait():
    nodes = Nodes(a=WHOLE)
    slots = nodes.map(A)
    await slots.owner(1)
    nodes.told.clear()
    nodes.asked.clear()
    slots.doubt(slots.version)
    assert await asyncio.gather(*(slots.owner(1) for _ in range(10))) == [A] * 10
    assert sorted(nodes.asked) == [A, B, C]
    await slots.owner(1)
    assert len(nodes.asked) == 6


async def test_after_a_failover_nobody_is_asked_as_one_that_is_none_any_more():
    nodes = Nodes(a=WHOLE)
    slots = nodes.map(A)
    await slots.owner(1)
    nodes.told[A] = [shard(0, 8000, C, A), shard(8001, 16383, B)]
    slots.moved(1, C)
    assert await slots.primaries() == (C, B)


async def test_nobody_at_the_start_says_what_the_last_one_said():
    with pytest.raises(ConnectionError, match="no node of the cluster answers: refused"):
        await Nodes().map(A, B).owner(1)
    refusal = ResponseError("This instance has cluster support disabled")
    with pytest.raises(ResponseError, match="support disabled"):
        await Nodes(a=refusal).map(A).owner(1)


async def test_who_left_is_closed_and_who_was_moved_to_is_kept_in_mind():
    nodes = Nodes(a=WHOLE)
    slots = nodes.map(A)
    await slots.owner(1)
    slots.moved(1, D)
    assert await slots.owner(1) == D
    assert await slots.primaries() == (A, B, D)
    assert slots.at(D) is slots.at(D)
    slots.at(A)
    assert slots.opened() == (D, A)
    nodes.closed.clear()
    slots.doubt(slots.version)
    assert await slots.owner(1) == A
    assert (slots.opened(), D in nodes.closed) == ((A,), True)
    await slots.aclose()
    assert nodes.closed[-1] == A
    assert slots.opened() == ()


async def test_what_lies_in_two_slots_or_has_no_key_is_refused_before_it_is_sent():
    client = connect("redis+cluster://nowhere.invalid")
    with pytest.raises(ClusterCrossSlotError, match="MGET: its keys lie in 2 slots"):
        await client.mget(["headstart:{a}", "headstart:{b}"])
    with pytest.raises(ClusterCrossSlotError, match="DBSIZE: its keys lie in 0 slots"):
        await client.dbsize()
    pipeline = client.pipeline(transaction=True)
    assert await pipeline.execute() == []
    for name in "ab":
        pipeline.set(f"headstart:{{{name}}}", 1)
    with pytest.raises(ClusterCrossSlotError, match="a transaction over 2 slots"):
        await pipeline.execute()
    await client.aclose()
