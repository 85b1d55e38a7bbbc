"""What each node lists, asked by the gateway itself while no controller tells."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass

from api.gateway.faults import Faults
from api.gateway.residency import RouteBook
from api.gateway.standings import Copy
from contracts.errors import HeadstartError
from contracts.ids import ModelId, NodeId
from contracts.ports import Clock, ModelServer

EVERY_S = 30.0
OLD_TABLE_S = 60.0
"""A table that is older says nothing any more of models that it does not list."""


@dataclass(frozen=True, slots=True)
class _Answer:
    models: frozenset[ModelId]
    residents: frozenset[ModelId]


class RollCall:
    """Asks every node now and then; of use only where there are several.

    Parameters
    ----------
    servers : mapping
        Of all nodes, as they come and go.
    primary : callable
        The node that counts as the home of what it lists.
    is_moving : bool
        Whether nodes come and go.
    """

    def __init__(
        self,
        *,
        servers: Mapping[NodeId, ModelServer],
        primary: Callable[[], NodeId],
        book: RouteBook,
        clock: Clock,
        is_moving: bool = False,
    ) -> None:
        self._servers = servers
        self._primary = primary
        self._book = book
        self._clock = clock
        self._is_moving = is_moving
        self._answers: dict[NodeId, _Answer] = {}
        self._nudged = asyncio.Event()
        self._faults = Faults("roll_call_unanswered")

    def copies(self, model: ModelId) -> tuple[Copy, ...]:
        """The nodes that list ``model``; nothing where none does, or none was asked yet."""
        listing = [node for node, answer in self._answers.items() if model in answer.models]
        primary = self._primary()
        home = primary if primary in listing else min(listing, default=None)
        return tuple(
            Copy(
                node=node,
                is_home=node == home,
                is_resident=model in self._answers[node].residents,
            )
            for node in listing
        )

    def forget(self, node: NodeId) -> None:
        """It has left."""
        self._answers.pop(node, None)
        self._faults.forget(node)

    def ask_now(self) -> None:
        """Somebody did not know a model that it should have: lists have changed."""
        self._nudged.set()

    def jobs(self) -> tuple[Callable[[], Coroutine[object, object, None]], ...]:
        """What has to run; nothing where there is one node."""
        return (self.run,) if len(self._servers) > 1 or self._is_moving else ()

    async def run(self) -> None:
        """Ask until cancelled, while the controller is silent."""
        while True:
            if self._is_needed():
                self._nudged.clear()
                await asyncio.gather(*(self._ask(node) for node in self._servers))
            try:
                async with self._clock.timeout(EVERY_S):
                    await self._nudged.wait()
                # However often it is asked for: no more than once a second.
                await self._clock.sleep(1.0)
            except TimeoutError:
                pass

    def _is_needed(self) -> bool:
        table = self._book.table
        if table is None or self._nudged.is_set():
            return True
        return self._clock.now_s() - table.made_at_s > OLD_TABLE_S

    async def _ask(self, node: NodeId) -> None:
        server = self._servers[node]
        try:
            models, report = await asyncio.gather(server.models(), server.report())
        except HeadstartError as error:
            # What it listed stays known: its circuit says whether it can be asked.
            self._faults.of(node).begin(error, node=node)
            return
        self._faults.of(node).end(node=node)
        if node in self._servers:
            self._answers[node] = _Answer(frozenset(models), frozenset(report.resident))
