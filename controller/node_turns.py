"""Loads of a leader and of gateways that load alone take turns on a node.

Gateways that hear no controller load by themselves, one at a time on a node and under its lock
(``contracts.ports.node_lock``). A leader takes the same lock for its loads there, as many at once
as it likes: so whatever either of them does not know of the other yet, bytes are given out once.
All leaders are one owner, since the lease lets only one lead: a new one takes over what the last
has left. To gateways a leader that dies leaves the lock behind for ``HOLD_REAL_S``.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import structlog

from contracts.errors import HeadstartError, Transient
from contracts.ids import NodeId
from contracts.ports import Clock, LoadLock, node_lock

HOLD_REAL_S = 1.0
FIRST_HOLD_REAL_S = 3.0
"""Of a new leader: until its tables and answers have reached every gateway."""
WAIT_REAL_S = 2.0
FIRST_WAIT_REAL_S = 1.5
_RENEW_REAL_S = 0.3
_LOOK_REAL_S = 0.05
_OWNER = "controller"

_log = structlog.get_logger("headstart.controller")


class NodeTurns:
    """The locks that one leader holds, each for as long as any load of its own runs there."""

    def __init__(self, lock: LoadLock | None, clock: Clock) -> None:
        self._lock = lock
        self._clock = clock
        self._loads: Counter[NodeId] = Counter()
        self._renewing: dict[NodeId, asyncio.Task[None]] = {}

    async def take_over(self, nodes: Iterable[NodeId]) -> frozenset[NodeId]:
        """Hold every node for a moment, as a new leader does; those where somebody else loads.

        Whoever waits there looks, once it has its turn, whether a controller has answered. A
        load that is under way by then has been told in the event log.
        """
        end_s = self._clock.monotonic_s() + FIRST_WAIT_REAL_S * self._clock.scale
        busy = set(nodes)
        while True:
            for node in sorted(busy):
                if await self._is_taken(node, hold_s=FIRST_HOLD_REAL_S):
                    busy.discard(node)
            if not busy or self._clock.monotonic_s() >= end_s:
                break
            await self._clock.sleep(_LOOK_REAL_S * self._clock.scale)
        for node in sorted(busy):
            _log.info("load_without_controller_goes_on", node=node)
        return frozenset(busy)

    @asynccontextmanager
    async def hold(self, node: NodeId) -> AsyncIterator[None]:
        """Raises Transient when somebody else loads there for longer than ``WAIT_REAL_S``."""
        await self._take(node)
        self._loads[node] += 1
        if node not in self._renewing:
            self._renewing[node] = asyncio.create_task(self._renew(node))
        try:
            yield
        finally:
            self._loads[node] -= 1
            if not self._loads[node]:
                del self._loads[node]
                self._renewing.pop(node).cancel()
                await self._release(node)

    async def _take(self, node: NodeId) -> None:
        end_s = self._clock.monotonic_s() + WAIT_REAL_S * self._clock.scale
        while not await self._is_taken(node):
            if self._clock.monotonic_s() >= end_s:
                raise Transient(f"a gateway loads on {node} alone; this load is planned anew")
            await self._clock.sleep(_LOOK_REAL_S * self._clock.scale)

    async def _is_taken(self, node: NodeId, *, hold_s: float = HOLD_REAL_S) -> bool:
        """Without a store nobody can take turns, and a load goes on."""
        if self._lock is None:
            return True
        try:
            return await self._lock.take(node_lock(node), _OWNER, hold_s=hold_s)
        except HeadstartError as error:
            _log.debug("node_turn_not_taken", node=node, error=str(error))
            return True

    async def _renew(self, node: NodeId) -> None:
        while True:
            await self._clock.sleep(_RENEW_REAL_S * self._clock.scale)
            await self._is_taken(node)

    async def _release(self, node: NodeId) -> None:
        if self._lock is None:
            return
        try:
            await self._lock.release(node_lock(node), _OWNER)
        except HeadstartError as error:
            # It frees itself soon.
            _log.debug("node_turn_not_released", node=node, error=str(error))
