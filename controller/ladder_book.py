"""Every model's ladder, and the rungs of it that LocalAI has yet to be told of.

One task makes them: it reads a model's own file, writes the rung's beside it (``document_of``)
and lets the observer look again, so that the rung is a model like all others a moment later.
Nothing is made while the mode orders nothing, and no file is written over that is not ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import structlog

from contracts.config import ControllerConfig, ModelProfile, PlannerConfig
from contracts.errors import HeadstartError
from contracts.ids import ModelId, NodeId
from contracts.plan import Outcome, PlannerState
from contracts.routing import RoutingTable
from contracts.variants import Ladder, Rung
from contracts.world import WorldSnapshot
from controller.demand import ABSENT
from controller.ladders import all_ladders, listed_rungs, with_host_rungs
from controller.ports import Ports
from controller.variant_documents import document_of, is_current, is_ours
from controller.wishes import with_stand_ins

_log = structlog.get_logger("headstart.controller")

CHECK_S = 300.0
"""How often it is looked whether a rung's file is still what its model's file makes of it."""

RETRY_S = 30.0


class LadderBook:
    """Knows the ladders of one term.

    Parameters
    ----------
    orders : callable
        Whether anything may be made now.
    """

    def __init__(
        self,
        config: ControllerConfig,
        ports: Ports,
        orders: Callable[[], bool],
    ) -> None:
        self._config = config
        self._files = ports.model_files
        self._weights = ports.weights_found
        self._clock = ports.clock
        self._orders = orders
        self._lists: dict[NodeId, frozenset[ModelId]] = {}
        self._profiles: Mapping[ModelId, ModelProfile] = {}
        self._foreign: set[ModelId] = set()
        self._asked: frozenset[ModelId] = frozenset()
        self._is_stalled = False
        self._news = asyncio.Event()
        self.ladders: Mapping[ModelId, Ladder] = {}

    def reconfigure(self, config: ControllerConfig) -> None:
        """The configuration has changed."""
        self._config = config
        self._learn()

    def listed(
        self, node: NodeId, models: Collection[ModelId], profiles: Mapping[ModelId, ModelProfile]
    ) -> None:
        """What a node lists, and what is declared of all models."""
        self._lists[node] = frozenset(models)
        self._profiles = profiles
        self._learn()

    def close(self, node: NodeId) -> None:
        """It has left, and lists nothing any more."""
        if self._lists.pop(node, None) is not None:
            self._learn()

    def prepared(self, world: WorldSnapshot, config: PlannerConfig) -> WorldSnapshot:
        """The world as the planner is to see it: rungs where they run, and who stands in."""
        if not self.ladders:
            return world
        self._note_asked(world)
        return with_stand_ins(with_host_rungs(world, self.ladders), self.ladders, config)

    def shown(self, table: RoutingTable, world: WorldSnapshot, state: PlannerState) -> RoutingTable:
        """The table with the ladders, and with why their models are not loaded."""
        ladders = listed_rungs(self.ladders, world)
        if not ladders:
            return table
        names = {name for one in ladders.values() for name in _names(one)}
        held = {
            name: replace(table.models[name], held=state.last_said[name][1])
            for name in names & table.models.keys() & state.last_said.keys()
            if state.last_said[name][0] is Outcome.HOLD and table.models[name].residency in ABSENT
        }
        return replace(table, ladders=ladders, models={**table.models, **held})

    async def run(self, made: Callable[[NodeId], None]) -> None:
        """Make what is missing, until cancelled; ``made`` is told where something was."""
        while True:
            is_news = True
            try:
                async with self._clock.timeout(RETRY_S if self._is_stalled else CHECK_S):
                    await self._news.wait()
            except TimeoutError:
                is_news = False
            self._news.clear()
            if self._orders():
                await self._make_all(made, checks=not is_news)

    async def _make_all(self, made: Callable[[NodeId], None], *, checks: bool) -> None:
        """Have every node make its rungs. A fault is logged when it begins and when it ends.

        ``checks``: also those that are there are looked at, whether they are still right.
        """
        try:
            for node in sorted(self._files):
                if await self._make_on(node, checks=checks):
                    made(node)
        except HeadstartError as error:
            if not self._is_stalled:
                _log.warning("variants_stalled", error=str(error))
            self._is_stalled = True
        else:
            if self._is_stalled:
                _log.info("variants_resumed")
            self._is_stalled = False

    async def _make_on(self, node: NodeId, *, checks: bool) -> bool:
        """Whether anything was made there."""
        here = self._lists.get(node, frozenset())
        is_news = False
        for ladder in list(self.ladders.values()):
            if ladder.model not in here or not self._is_wanted(ladder.model):
                continue
            for rung in ladder.rungs:
                is_there = rung.model in here and not checks
                if rung.is_made and not is_there and rung.model not in self._foreign:
                    is_news |= await self._make(node, ladder.model, rung)
        return is_news

    def _is_wanted(self, model: ModelId) -> bool:
        """Whether its rungs are worth a file: somebody named them, or asked for the model."""
        own = self._config.ladders.get(model)
        return (own is not None and bool(own.rungs)) or model in self._asked

    def _note_asked(self, world: WorldSnapshot) -> None:
        asked = frozenset(
            name
            for name in self.ladders
            if name in world.models and world.models[name].last_used_at_s is not None
        )
        if not asked <= self._asked:
            self._asked |= asked
            self._news.set()

    async def _make(self, node: NodeId, model: ModelId, rung: Rung) -> bool:
        files = self._files.get(node)
        base = None if files is None else await files.read(model)
        if files is None or base is None:
            return False
        before = await files.read(rung.model)
        if before is not None and not is_ours(before):
            self._foreign.add(rung.model)
            _log.warning("variant_not_ours", node=node, model=rung.model)
            return False
        if before is not None and is_current(before, base, rung):
            return False
        if not self._orders():
            return False
        await files.write(document_of(model, base, rung))
        _log.info("variant_made", node=node, model=rung.model, of=model, kind=rung.kind.value)
        return True

    def _learn(self) -> None:
        everywhere = frozenset().union(*self._lists.values())
        ladders = all_ladders(
            self._config.ladders,
            self._config.ladder_options,
            self._profiles,
            everywhere,
            self._weights() if self._config.ladder_options.smaller_files else (),
        )
        missing = any(
            rung.is_made and rung.model not in everywhere
            for ladder in ladders.values()
            if self._is_wanted(ladder.model)
            for rung in ladder.rungs
        )
        if missing or ladders != self.ladders:
            self._news.set()
        self.ladders = ladders


def _names(ladder: Ladder) -> tuple[ModelId, ...]:
    return (ladder.model, *(rung.model for rung in ladder.rungs))
