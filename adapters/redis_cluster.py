"""A client of a Redis Cluster that is used as one of a single server is.

Each command goes to the node that has its key's slot, over a plain client of that node: so that
blocking reads, MULTI, timeouts and cancellations are what they are elsewhere. redis-py's own
asynchronous cluster client is not used (ADR 0023): it sends ASKING over another connection than
the command, closes everybody's connections at a redirection, and knows no MULTI without a thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import redis.asyncio
from redis.asyncio.client import Pipeline
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterCrossSlotError,
    ClusterDownError,
    ConnectionError,  # noqa: A004 - the library's own name
    MaxConnectionsError,
    MovedError,
    RedisError,
    TimeoutError,  # noqa: A004 - the library's own name
    TryAgainError,
)

from adapters.redis_cluster_map import Place, SlotMap

T = TypeVar("T")

_ANYWHERE = frozenset({"PING", "TIME", "INFO", "CONFIG GET"})
_EVERYWHERE = frozenset({"SCRIPT LOAD", "SCRIPT FLUSH", "FLUSHALL", "CLIENT LIST"})
_SPLIT = frozenset({"DEL", "UNLINK", "EXISTS"})
_ASK_TIMEOUT_S = 2.0
_REDIRECTIONS = 5
"""More than these one after the other, and the cluster is looked at as one that changes."""

_PASSING = (ConnectionError, ClusterDownError, TryAgainError, AskError)

NodeClient = redis.asyncio.Redis


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLayout:
    """Who has what.

    Attributes
    ----------
    replicas : mapping
        How many each primary has, by its host and port.
    unserved_slots : int
        Slots of which no node says that it has them.
    """

    replicas: Mapping[str, int]
    unserved_slots: int


class ClusterClient(redis.asyncio.Redis):
    """What ``adapters.redis_client.connect`` gives for the address of a cluster.

    Parameters
    ----------
    seeds : sequence of Place
        Some of the nodes.
    options : mapping
        redis-py's arguments for the connections to each node.
    is_retried : callable
        Whether a broken connection is tried again; a refusal is not.

    Notes
    -----
    Keys of one command, script or pipeline must lie in one slot (``contracts.redis_keys``), but
    for ``DEL``, ``UNLINK`` and ``EXISTS``. Pipelines are transactions.
    """

    def __init__(
        self,
        seeds: Sequence[Place],
        options: Mapping[str, Any],
        *,
        is_retried: Callable[[Exception], bool],
    ) -> None:
        # Retried here alone, where another node can be found for the same key.
        plain = {**options, "retry": Retry(NoBackoff(), 0)}
        super().__init__(host=seeds[0][0], port=seeds[0][1], **plain)
        asking = {**plain, "socket_timeout": _ASK_TIMEOUT_S, "health_check_interval": 0}
        self._map = SlotMap(
            seeds,
            open_node=lambda place: redis.asyncio.Redis(host=place[0], port=place[1], **plain),
            open_asking=lambda place: redis.asyncio.Redis(host=place[0], port=place[1], **asking),
        )
        self._is_retried = is_retried

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """One command, where its key is."""
        name = args[0]
        if name in _EVERYWHERE:
            return await self._everywhere(args, options)
        if name in _ANYWHERE:
            return await self._retrying(partial(self._anywhere, args, options))
        keys = _keys(args)
        slots = {_slot(key) for key in keys}
        if len(slots) > 1 and name in _SPLIT:
            return await self._split(name, keys)
        if len(slots) != 1:
            raise ClusterCrossSlotError(f"{name}: its keys lie in {len(slots)} slots")

        async def run(node: NodeClient) -> Any:
            return await _send(node, args, options)

        async def run_asking(node: NodeClient) -> Any:
            # On one connection, else the node knows nothing of the asking.
            async with node.pipeline(transaction=False) as pipeline:
                pipeline.execute_command("ASKING")
                pipeline.execute_command(*args, **options)
                reply = (await pipeline.execute(raise_on_error=False))[-1]
            if isinstance(reply, RedisError):
                raise reply
            return reply

        return await self.on_slot(slots.pop(), run, run_asking)

    async def on_slot(
        self,
        slot: int,
        run: Callable[[NodeClient], Awaitable[T]],
        run_asking: Callable[[NodeClient], Awaitable[T]] | None = None,
    ) -> T:
        """Run on the node that has a slot, and again elsewhere when it has moved.

        ``run_asking``: on the node to which the slot moves just now; None: wait until it has.
        """

        async def once() -> T:
            place = await self._map.owner(slot)
            for _ in range(_REDIRECTIONS):
                try:
                    return await run(self._map.at(place))
                except MovedError as error:
                    place = _redirected(error, place)
                    self._map.moved(slot, place)
                except AskError as error:
                    if run_asking is None:
                        raise
                    return await run_asking(self._map.at(_redirected(error, place)))
            raise TryAgainError("the slots of the cluster move")

        return await self._retrying(once)

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:  # noqa: ARG002, FBT001, FBT002 - redis-py's signature
        """Commands on keys of one slot, carried out as one."""
        return _SlotPipeline(self)

    async def scan_iter(  # type: ignore[override] # redis-py's has more arguments
        self, match: str | None = None, count: int | None = None
    ) -> AsyncIterator[Any]:
        """Keys of all nodes."""
        for node in (await self.servers()).values():
            async for key in node.scan_iter(match=match, count=count):
                yield key

    async def servers(self) -> dict[str, NodeClient]:
        """A client of each node that has slots, by its host and port."""

        async def ask() -> dict[str, NodeClient]:
            return {_said(place): self._map.at(place) for place in await self._map.primaries()}

        return await self._retrying(ask)

    async def layout(self) -> ClusterLayout:
        """Which nodes there are."""

        async def ask() -> ClusterLayout:
            shards = await self._map.shards()
            return ClusterLayout(
                replicas={_said(primary): len(found) for primary, found in shards.items()},
                unserved_slots=await self._map.unserved(),
            )

        return await self._retrying(ask)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 - redis-py's
        """Close all connections."""
        await self._map.aclose()
        await super().aclose(close_connection_pool)

    async def _retrying(self, do: Callable[[], Awaitable[T]]) -> T:
        """Three times within about a second, with a new look at the cluster before each."""

        async def attempt() -> T:
            seen = self._map.version
            try:
                return await do()
            except (*_PASSING, TimeoutError):
                self._map.doubt(seen)
                raise

        async def failed(_error: Exception) -> None:
            """Nothing is left to do."""

        def is_retried(error: Exception) -> bool:
            return not isinstance(error, MaxConnectionsError) and self._is_retried(error)

        retry = Retry(ExponentialWithJitterBackoff(base=0.05, cap=0.5), 3, _PASSING)
        return await retry.call_with_retry(attempt, failed, is_retried)

    async def _anywhere(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        places = await self._map.primaries()
        for place in places[:-1]:
            try:
                return await _send(self._map.at(place), args, options)
            except (ConnectionError, TimeoutError):
                continue
        return await _send(self._map.at(places[-1]), args, options)

    async def _everywhere(self, args: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
        """On each node that answers; lists are put together, of others the first is taken."""
        await self.servers()
        replies: list[Any] = []
        fault: RedisError | None = None
        for place in dict.fromkeys([*await self._map.primaries(), *self._map.opened()]):
            try:
                replies.append(await _send(self._map.at(place), args, options))
            except (ConnectionError, TimeoutError) as error:
                self._map.doubt(self._map.version)
                fault = error
        if not replies:
            raise fault or ConnectionError("the cluster has no nodes")
        if isinstance(replies[0], list):
            return [each for reply in replies for each in reply]
        return replies[0]

    async def _split(self, name: str, keys: Sequence[Any]) -> int:
        of_slot: dict[int, list[Any]] = {}
        for key in keys:
            of_slot.setdefault(_slot(key), []).append(key)
        return sum([await self.execute_command(name, *some) for some in of_slot.values()])


class _SlotPipeline(Pipeline):
    """A transaction that finds its node when it is carried out."""

    def __init__(self, cluster: ClusterClient) -> None:
        super().__init__(
            cluster.connection_pool, cluster.response_callbacks, transaction=True, shard_hint=None
        )
        self._cluster = cluster

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002 - redis-py's
        stack = self.command_stack
        if not stack:
            return []
        slots = {_slot(key) for args, _ in stack for key in _keys(args)}
        if len(slots) != 1:
            raise ClusterCrossSlotError(f"a transaction over {len(slots)} slots")

        async def run(node: NodeClient) -> list[Any]:
            self.connection_pool = node.connection_pool
            self.command_stack = list(stack)
            return await super(_SlotPipeline, self).execute(raise_on_error)

        return await self._cluster.on_slot(slots.pop(), run)


async def _send(node: Any, args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    return await node.execute_command(*args, **options)


def _keys(args: Sequence[Any]) -> Sequence[Any]:
    """The keys of a command, of those that are used here."""
    name = args[0]
    if name in {"EVAL", "EVALSHA"}:
        return args[3 : 3 + int(args[2])]
    if name == "XREAD":
        streams = args[args.index(b"STREAMS") + 1 :]
        return streams[: len(streams) // 2]
    if name in _SPLIT or name == "MGET":
        return args[1:]
    return args[1:2]


def _slot(key: Any) -> int:
    return key_slot(key if isinstance(key, bytes) else str(key).encode())


def _said(place: Place) -> str:
    return f"{place[0]}:{place[1]}"


def _redirected(error: AskError, asked: Place) -> Place:
    return (error.host or asked[0], int(error.port))
