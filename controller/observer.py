"""Looks at each LocalAI: what is resident, what it lists, what it says a model needs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from contracts.config import ModelProfile
from contracts.errors import HeadstartError, Permanent
from contracts.events import AnyEvent, NodeLost, NodeObserved
from contracts.ids import ModelId, NodeId
from contracts.node_facts import Access, NodeFacts, NodeWarning
from contracts.ports import Clock, ModelServer
from controller.ports import DeclaredProfile, nothing_declared
from controller.sight import Sight
from controller.stamps import Stamp

_log = structlog.get_logger("headstart.controller")

CATALOGUE_EVERY = 6
"""Polls between two readings of the model list: every half minute at 5 s a poll."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What one node lists, and what is known of it without loading anything."""

    node: NodeId
    models: tuple[ModelId, ...]
    aliases: Mapping[str, ModelId]
    footprints: Mapping[ModelId, int]
    profiles: Mapping[ModelId, ModelProfile]
    facts: NodeFacts | None = None


class Observer:
    """Polls one node until cancelled."""

    def __init__(
        self,
        node: NodeId,
        server: ModelServer,
        *,
        clock: Clock,
        poll_s: float,
        stamp: Callable[[], Stamp],
        emit: Callable[[AnyEvent], None],
        listed: Callable[[Catalogue], None],
        declared: DeclaredProfile = nothing_declared,
        sight: Sight | None = None,
    ) -> None:
        self._node = node
        self._server = server
        self._clock = clock
        self._poll_s = poll_s
        self._stamp = stamp
        self._emit = emit
        self._listed = listed
        self._declared = declared
        self._sight = Sight(node, clock=clock) if sight is None else sight
        self._footprints: dict[ModelId, int | None] = {}
        self._profiles: dict[ModelId, ModelProfile | None] = {}
        self._lost = False
        self._broken_aliases: frozenset[str] = frozenset()
        self._facts: NodeFacts | None = None
        self._facts_began_at_s: float | None = None
        self._began_at_s: float | None = None
        self._resident: tuple[ModelId, ...] = ()
        self._nudged = asyncio.Event()

    def look_now(self) -> None:
        """Poll at once: a gateway asked for a model that is not in the catalogue."""
        self._nudged.set()

    async def look(self) -> None:
        """Poll now; what was found has been told when this returns."""
        await self._look(catalogue_due=False, fresh=True)

    async def run(self) -> None:
        """Look, wait, look again. A fault is logged when it begins and when it ends."""
        polls = 0
        while True:
            nudged = self._nudged.is_set()
            catalogue_due = polls % CATALOGUE_EVERY == 0 or nudged
            self._nudged.clear()
            if await self._look(catalogue_due=catalogue_due, fresh=nudged):
                polls += 1
            else:
                polls = 0  # read the list anew once it is back
            try:
                async with self._clock.timeout(self._poll_s):
                    await self._nudged.wait()
            except TimeoutError:
                pass

    async def _look(self, *, catalogue_due: bool, fresh: bool) -> bool:
        stamp = self._stamp()
        try:
            catalogue = await self._catalogue() if catalogue_due else None
            report = await self._server.report()
            restarted = await self._has_restarted(report.resident)
        except HeadstartError as error:
            if not self._lost:
                _log.warning("node_lost", node=self._node, error=str(error))
                self._emit(NodeLost(**stamp, node=self._node, error=str(error)))
            self._lost = True
            return False
        if self._lost:
            _log.info("node_back", node=self._node)
        self._lost = False
        self._resident = report.resident
        found = await self._sight.of(report, fresh=fresh)
        if catalogue is not None:
            # With the first poll's own word, so that no model ever is on a node that is not there.
            self._listed(catalogue)
        self._emit(
            NodeObserved(
                **stamp,
                node=self._node,
                resident=report.resident,
                busy=(),
                memory_total_bytes=found.memory_total_bytes,
                memory_used_bytes=found.memory_used_bytes,
                model_limit=report.model_limit,
                used_by_others_bytes=found.used_by_others_bytes,
                reading=found.reading,
                restarted=restarted,
            )
        )
        return True

    async def _has_restarted(self, resident: tuple[ModelId, ...]) -> bool:
        """Whether all went at once since LocalAI began anew: as its metrics say, if they do.

        Else it is taken for a restart where nothing is left, and the node was away or had had
        more than one model.
        """
        before = frozenset(self._resident)
        if before & frozenset(resident) or not (before or resident):
            return False
        known_s, began_s = self._began_at_s, await self._server.started_at_s()
        self._began_at_s = began_s
        if not before:
            return False
        if known_s is not None and began_s is not None:
            return known_s != began_s
        return not resident and (self._lost or len(before) > 1)

    async def _look_up(self) -> NodeFacts:
        """What the node is; all of it anew where it may be another LocalAI than before."""
        began_s = await self._server.started_at_s()
        is_new = self._lost or self._facts is None or began_s != self._facts_began_at_s
        facts = await self._server.facts(fresh=is_new)
        self._tell_facts(facts, self._facts)
        self._facts, self._facts_began_at_s = facts, began_s
        return facts

    def _tell_facts(self, facts: NodeFacts, before: NodeFacts | None) -> None:
        can, could = facts.capabilities, None if before is None else before.capabilities
        if could is None or could != can:
            _log.info(
                "node_capabilities",
                node=self._node,
                version=can.version or "unknown",
                absent=[call.value for call in can.those(Access.ABSENT)],
                refused=[call.value for call in can.those(Access.REFUSED)],
            )
        known = () if before is None else before.warnings
        for warning in facts.warnings:
            if warning not in known:
                _log.warning("setting_fights", node=self._node, **_told(warning))
        settings = {warning.setting for warning in facts.warnings}
        for warning in known:
            if warning.setting not in settings:
                _log.info("setting_mended", node=self._node, setting=warning.setting)

    async def _catalogue(self) -> Catalogue:
        models = await self._server.models()
        for model in models:
            if model not in self._footprints:
                await self._inquire(model)
        aliases = await self._server.aliases()
        self._tell_broken(aliases, models)
        return Catalogue(
            node=self._node,
            models=models,
            aliases=aliases,
            footprints={m: size for m, size in self._footprints.items() if size is not None},
            profiles={m: found for m, found in self._profiles.items() if found is not None},
            facts=await self._look_up(),
        )

    def _tell_broken(self, aliases: Mapping[str, ModelId], models: tuple[ModelId, ...]) -> None:
        """One line when an alias leads to nothing that can be asked for, one when it does again."""
        known = frozenset(models)
        broken = frozenset(alias for alias, target in aliases.items() if target not in known)
        for alias in sorted(broken - self._broken_aliases):
            _log.warning("alias_broken", node=self._node, alias=alias, target=aliases[alias])
        for alias in sorted(self._broken_aliases - broken):
            _log.info("alias_mended", node=self._node, alias=alias)
        self._broken_aliases = broken

    async def _inquire(self, model: ModelId) -> None:
        """Once per model: what LocalAI thinks it needs, and what its file declares for us."""
        footprint: int | None = None
        profile: ModelProfile | None = None
        try:
            footprint = await self._server.estimate_footprint_bytes(model)
            profile = await self._declared(self._node, model)
        except Permanent as error:
            # This LocalAI will not tell, or the model is gone again: not known, then.
            _log.warning("model_not_described", model=model, error=str(error))
        self._footprints[model] = footprint
        self._profiles[model] = profile


def _told(warning: NodeWarning) -> dict[str, str]:
    return {
        "setting": warning.setting,
        "value": warning.value,
        "problem": warning.problem,
        "remedy": warning.remedy,
    }
