"""Names that LocalAI would try to load although nothing goes by them: those with a slash.

It checks all other names itself. One with a slash it takes for a model to be had from elsewhere:
every backend is started with it, and then the name cools down.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from api.gateway.problems import unknown_model
from api.gateway.residency import RouteBook
from contracts.errors import HeadstartError
from contracts.ids import ModelId, NodeId
from contracts.ports import Clock, ModelServer

HOLDS_S = 2.0
"""How long a look at what LocalAI lists stands for the names that come next."""

ASK_LIMIT_S = 5.0
"""A LocalAI that does not tell in time judges the name itself."""


class KnownNames:
    """Refuses a name that no LocalAI lists, where all of them could be asked."""

    def __init__(
        self, *, book: RouteBook, servers: Mapping[NodeId, ModelServer], clock: Clock
    ) -> None:
        self._book = book
        self._servers = servers
        self._clock = clock
        self._asking = asyncio.Lock()
        self._listed: frozenset[str] | None = None
        self._asked_s = -HOLDS_S

    async def check(self, model: ModelId | None) -> None:
        """Raise Problem (404) where nothing goes by this name."""
        if model is None or "/" not in model or self._book.names(model):
            return
        async with self._asking:
            if self._clock.monotonic_s() - self._asked_s >= HOLDS_S:
                self._listed = await self._ask()
                self._asked_s = self._clock.monotonic_s()
        if self._listed is not None and model not in self._listed:
            raise unknown_model(model)

    async def _ask(self) -> frozenset[str] | None:
        """All names and aliases; None where one LocalAI did not tell, would not, or has none."""
        try:
            async with self._clock.timeout(max(ASK_LIMIT_S, self._clock.scale)):
                told = await asyncio.gather(*(self._of(one) for one in self._servers.values()))
        except (HeadstartError, TimeoutError):
            return None
        return frozenset().union(*told) if all(told) else None

    async def _of(self, server: ModelServer) -> frozenset[str]:
        names, aliases = await asyncio.gather(server.models(), server.aliases())
        return frozenset((*names, *aliases))
