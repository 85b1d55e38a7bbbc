"""Which node of a Redis Cluster has which slot, as the nodes themselves tell it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import redis.asyncio
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import (
    ConnectionError,  # noqa: A004 - the library's own name
    RedisError,
    ResponseError,
)

Place = tuple[str, int]
"""Host and port of a node."""


class SlotMap:
    """Slots, their owners, and one client for each node that was needed so far.

    Parameters
    ----------
    seeds : sequence of Place
        Nodes that are asked as long as nothing better is known.
    open_node, open_asking : callable
        A client of one node, for commands; and one for the question who has what, which must not
        wait long for an answer.

    Attributes
    ----------
    version : int
        Goes up each time that the nodes were asked. 0: not yet.
    """

    def __init__(
        self,
        seeds: Sequence[Place],
        *,
        open_node: Callable[[Place], redis.asyncio.Redis],
        open_asking: Callable[[Place], redis.asyncio.Redis],
    ) -> None:
        self._seeds = tuple(seeds)
        self._open_node = open_node
        self._open_asking = open_asking
        self._nodes: dict[Place, redis.asyncio.Redis] = {}
        self._owners: list[Place | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._primaries: tuple[Place, ...] = ()
        self._replicas: dict[Place, tuple[Place, ...]] = {}
        self._known: list[Place] = []
        self._lock = asyncio.Lock()
        self._is_doubtful = True
        self._silence: tuple[int, RedisError | None] = (0, None)
        self.version = 0

    async def owner(self, slot: int) -> Place:
        """Who has a slot. Raises ConnectionError where nobody does."""
        await self._settle()
        place = self._owners[slot]
        if place is None:
            raise ConnectionError(f"slot {slot} of the cluster is served by no node")
        return place

    async def primaries(self) -> tuple[Place, ...]:
        """The nodes that have slots, in no order that means anything."""
        await self._settle()
        return self._primaries

    async def shards(self) -> dict[Place, tuple[Place, ...]]:
        """The replicas of each primary, as the nodes have told last."""
        await self._settle()
        return {primary: self._replicas.get(primary, ()) for primary in self._primaries}

    async def unserved(self) -> int:
        """How many slots nobody has."""
        await self._settle()
        return self._owners.count(None)

    def at(self, place: Place) -> redis.asyncio.Redis:
        """The client of a node."""
        if place not in self._nodes:
            self._nodes[place] = self._open_node(place)
        return self._nodes[place]

    def opened(self) -> tuple[Place, ...]:
        """The nodes that there is a client of; one that imports its first slot is no primary."""
        return tuple(self._nodes)

    def moved(self, slot: int, place: Place) -> None:
        """A node has said that another one has the slot now."""
        self._owners[slot] = place
        if place not in self._primaries:
            self._primaries += (place,)
            # A replica that has slots took over: who had them is none any more.
            self._is_doubtful |= place in self._known

    def doubt(self, seen: int) -> None:
        """Have the nodes asked before the next command; not when they were since ``seen``."""
        self._is_doubtful |= self.version == seen

    async def look(self, seen: int) -> None:
        """Ask the nodes, unless somebody else has done so since ``version`` was ``seen``.

        Of many who wait for an answer at the same time one asks, also where none comes.

        Raises
        ------
        RedisError
            No node told anything; what was known stays.
        """
        silences, _ = self._silence
        async with self._lock:
            if self.version != seen:
                return
            count, fault = self._silence
            if count == silences or fault is None:
                fault = await self._ask_all()
                if fault is None:
                    return
                self._silence = (count + 1, fault)
        if isinstance(fault, ResponseError):
            raise fault
        raise ConnectionError(f"no node of the cluster answers: {fault}") from fault

    async def aclose(self) -> None:
        """Close all connections."""
        nodes, self._nodes = self._nodes, {}
        for node in nodes.values():
            await node.aclose()

    async def _settle(self) -> None:
        if not self._is_doubtful:
            return
        try:
            await self.look(self.version)
        except RedisError:
            if self.version == 0:
                raise
            # Nobody tells anything new; whoever has the slot may still serve it.

    async def _ask_all(self) -> RedisError | None:
        """Take what the first one says that answers; None, or what the last one said."""
        fault: RedisError = ConnectionError("it has none")
        for place in [*self._known, *(one for one in self._seeds if one not in self._known)]:
            try:
                told = await self._ask(place)
            except RedisError as error:
                fault = error
                continue
            await self._take(told, place)
            return None
        return fault

    async def _ask(self, place: Place) -> list[Any]:
        asking: Any = self._open_asking(place)
        try:
            told: list[Any] = await asking.execute_command("CLUSTER SLOTS")
        finally:
            await asking.aclose()
        return told

    async def _take(self, told: list[Any], asked: Place) -> None:
        owners: list[Place | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        places: dict[Place, None] = {}
        replicas: dict[Place, tuple[Place, ...]] = {}
        for first, last, *nodes in told:
            shard = [_place(node, asked) for node in nodes]
            owners[first : last + 1] = [shard[0]] * (last + 1 - first)
            replicas[shard[0]] = tuple(shard[1:])
            places.update(dict.fromkeys(shard))
        self._owners, self._replicas, self._primaries = owners, replicas, tuple(replicas)
        # Whoever has just answered is asked first the next time.
        self._known = [asked, *(place for place in places if place != asked)]
        self.version += 1
        self._is_doubtful = False
        for left in [self._nodes.pop(one) for one in tuple(self._nodes) if one not in places]:
            await left.aclose()


def _place(node: Sequence[Any], asked: Place) -> Place:
    """A node that does not know its own name is where the one that told of it is."""
    host = node[0].decode() if isinstance(node[0], bytes) else node[0]
    return (host or asked[0], int(node[1]))
