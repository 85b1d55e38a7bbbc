"""Looks at memory around loads and unloads, and keeps what was measured.

A load is measured between two looks at the node while it is alone in moving; an unload counts
once the probe shows its memory. What is learned goes to the store a few seconds later, so that
traffic does not become writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import structlog

from contracts.config import ModelProfile, PlannerConfig
from contracts.errors import Transient
from contracts.events import (
    AnyEvent,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    NodeObserved,
)
from contracts.ids import ModelId, NodeId
from contracts.memory import FootprintSource, PlaceId, Split
from contracts.plan import Decision, Outcome
from contracts.ports import Clock, ProfileStore
from contracts.profiles import Estimate
from contracts.reasons import Reason
from contracts.world import ModelStatus, WorldSnapshot
from controller.footprints import reconfigured, with_footprint
from controller.kept import overfull
from controller.memory_truth import (
    Sample,
    expected_back,
    free_at,
    freed_bytes,
    growing,
    is_back,
    is_steady,
    measured_split,
    others_move,
    sample_of,
)
from controller.profile_book import ProfileBook, is_warm

_log = structlog.get_logger("headstart.controller")

POLICY = "memory"

BACK_WITHIN_S = 10.0
"""A stopped process gives its memory back within a second; one that has not by then lives on."""
LOOK_AGAIN_S = 0.25

GATE_S = 2.0
"""A stop waits so long for another one on its node; an idle model is stopped in 0.1 s."""

LOOK_REAL_S = 1.0
"""A node that does not answer holds nobody up for longer, in real seconds."""

STORE_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Before:
    """What is known as a load or an unload begins. ``moves``: of its node so far."""

    sample: Sample | None
    moves: int
    is_steady: bool
    free_bytes: int | None
    is_warm: bool | None
    residents: tuple[ModelId, ...] = ()


@dataclass(frozen=True, slots=True)
class Seen:
    """What the probe showed after an unload."""

    is_back: bool = True
    freed_bytes: int | None = None


SEEN_NOTHING = Seen()


def blind_desk(clock: Clock) -> MemoryDesk:
    """One that sees nothing, so that nothing is measured and each unload counts at once."""

    async def look(_node: NodeId) -> None:
        return None

    return MemoryDesk(
        clock=clock,
        store=None,
        world=lambda: WorldSnapshot(taken_at_s=0.0),
        look=look,
        decided=lambda _decisions: None,
    )


class MemoryDesk:
    """One per term of leadership.

    Parameters
    ----------
    world : callable
        The world as it is believed now.
    look : callable
        Polls a node at once; what it finds is in the world when it returns.
    decided : callable
        Takes decisions into the journal.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        store: ProfileStore | None,
        world: Callable[[], WorldSnapshot],
        look: Callable[[NodeId], Awaitable[None]],
        decided: Callable[[tuple[Decision, ...]], None],
    ) -> None:
        self._clock = clock
        self._store = store
        self._world = world
        self._look = look
        self._decided = decided
        self._book = ProfileBook()
        self._revisions: dict[ModelId, str] = {}
        self._samples: dict[NodeId, tuple[Sample, ...]] = {}
        self._moves: dict[NodeId, int] = {}
        self._ended_s: dict[ModelId, float] = {}
        self._begun: set[ModelId] = set()
        self._gates: dict[NodeId, asyncio.Lock] = {}
        self._is_away = False
        self._overfull: frozenset[NodeId] = frozenset()
        self._told = 0

    async def resume(self) -> None:
        """Go on with what earlier terms measured. Raises Transient."""
        if self._store is not None:
            self._book.restore(await self._store.get_all())

    async def run(self) -> None:
        """Store what is new, now and then, until cancelled."""
        while True:
            await self._clock.sleep(STORE_EVERY_S)
            await self.flush()

    async def flush(self) -> None:
        """Store what is new; where that cannot be, it is tried again with what comes next."""
        changed = self._book.take_changed()
        if self._store is None or not changed:
            return
        try:
            await self._store.put(changed)
        except Transient as error:
            self._book.changed_still(profile.model for profile in changed)
            if not self._is_away:
                _log.warning("profiles_not_stored", error=str(error))
            self._is_away = True
        else:
            if self._is_away:
                _log.info("profiles_stored_again")
            self._is_away = False

    def forget(self, model: ModelId) -> None:
        """Somebody removed what was measured of it."""
        self._book.forget(model)

    def close(self, node: NodeId) -> None:
        """It has left: what was seen of its memory is of no use any more."""
        for known in (self._samples, self._moves, self._gates):
            known.pop(node, None)

    def configured(
        self,
        world: WorldSnapshot,
        profiles: Mapping[ModelId, ModelProfile],
        config: PlannerConfig,
    ) -> WorldSnapshot:
        """The world after these configurations were read: another one is measured anew."""
        revisions = {name: one.revision for name, one in profiles.items() if one.revision}
        known = self._revisions
        changed = [name for name, one in revisions.items() if known.get(name, one) != one]
        self._revisions = {**known, **revisions}
        self._book.configured(revisions)
        self._tell_overfull(overfull(world, profiles, config))
        return reconfigured(world, changed)

    def _tell_overfull(self, found: Mapping[NodeId, tuple[int, int]]) -> None:
        """One line when what is to be kept resident is too much, one when it fits again."""
        for node in sorted(found.keys() - self._overfull):
            wanted, usable = found[node]
            _log.warning(
                "kept_models_exceed_memory",
                node=node,
                wanted_bytes=wanted,
                usable_bytes=usable,
                remedy="preload or pin less, or lower memory.reserve_ratio",
            )
        for node in sorted(self._overfull - found.keys()):
            _log.info("kept_models_fit_again", node=node)
        self._overfull = frozenset(found)

    def measured(self, node: NodeId) -> Mapping[ModelId, Mapping[PlaceId, Estimate]]:
        """Footprints by place of every model that was measured on ``node``."""
        found = {name: self._book.measures(name, node) for name in self._book.models}
        return {name: one.footprint() for name, one in found.items() if one is not None}

    def heard(self, event: AnyEvent) -> None:
        """Something happened, and is in the world already."""
        match event:
            case NodeObserved():
                node = self._world().nodes.get(event.node)
                sample = None if node is None else sample_of(node)
                if sample is not None:
                    # Two looks tell whether others keep still.
                    self._samples[event.node] = (*self._samples.get(event.node, ()), sample)[-2:]
            case ModelLoadStarted() | ModelLoaded() | ModelLoadFailed() | ModelUnloaded():
                self._moved(event)
            case _:
                self._book.heard(event, self._world())

    def _moved(
        self, event: ModelLoadStarted | ModelLoaded | ModelLoadFailed | ModelUnloaded
    ) -> None:
        """What was seen before it says nothing of what comes after it."""
        node = event.node
        self._moves[node] = self._moves.get(node, 0) + 1
        samples = self._samples.pop(node, ())
        self._begun.discard(event.model)
        match event:
            case ModelLoadStarted():
                self._begun.add(event.model)
                kept = samples[:0]
            case ModelLoaded():
                # A look after the load's end was taken before its end is told.
                ended_s = self._ended_s.pop(event.model, event.at_s)
                kept = tuple(sample for sample in samples if sample.at_s >= ended_s)
            case ModelUnloaded():
                kept = samples[-1:]
            case _:
                kept = ()
        if kept:
            self._samples[node] = kept

    def before(self, model: ModelId, node: NodeId) -> Before:
        """What is known as a load of ``model`` is about to begin."""
        world = self._world()
        samples = self._samples.get(node, ())
        status, here = world.models.get(model), world.nodes.get(node)
        known = status is not None and here is not None
        return Before(
            sample=samples[-1] if samples else None,
            moves=self._moves.get(node, 0),
            is_steady=len(samples) < 2 or is_steady(*samples),
            free_bytes=free_at(here, status) if known and here and status else None,
            is_warm=is_warm(world, model, self._clock.now_s()),
            residents=() if here is None else here.residents,
        )

    async def after_load(
        self, model: ModelId, node: NodeId, before: Before, load_s: float
    ) -> tuple[int | None, Split]:
        """What it takes by all measurements, this load's included; None and empty: not known."""
        now_s = self._clock.now_s()
        self._ended_s[model] = now_s
        self._book.loaded(model, node, load_s, now_s, warm=before.is_warm)
        status = self._world().models.get(model)
        if status is None or before.sample is None:
            return None, {}
        split = await self._measure(status, node, before)
        if split is None:
            self._book.rejected(model, node, now_s)
        else:
            self._book.footprint(model, node, split, now_s)
        return self._believed(model, node)

    def _believed(self, model: ModelId, node: NodeId) -> tuple[int | None, Split]:
        status, here = self._world().models.get(model), self._world().nodes.get(node)
        measures = self._book.measures(model, node)
        if status is None or here is None or measures is None:
            return None, {}
        source, size = status.footprint_source, status.footprint_bytes
        is_told = size is not None and source not in (None, FootprintSource.MEASURED)
        told = (size, source) if is_told and size is not None and source is not None else None
        after = with_footprint(status, here, measures.footprint(), told)
        if after.footprint_source is not FootprintSource.MEASURED:
            return None, {}
        return after.footprint_bytes, after.split

    async def _measure(self, status: ModelStatus, node: NodeId, before: Before) -> Split | None:
        """None where it was not alone, or others moved."""
        # Its own start is the one move that there was.
        if not before.is_steady or self._moves.get(node, 0) != before.moves + 1:
            return None
        if before.sample is None or not await self._look_soon(node):
            return None
        world = self._world()
        here = world.nodes.get(node)
        after = None if here is None else sample_of(here)
        if here is None or after is None or others_move(world, status, self._begun):
            return None
        if set(here.residents) - {status.model} != set(before.residents) - {status.model}:
            return None
        return measured_split(before.sample, after)

    async def before_stop(self, model: ModelId, node: NodeId) -> Before:
        """What is known as a drained model is about to be stopped."""
        if not self._samples.get(node):
            await self._look_soon(node)
        return self.before(model, node)

    async def after_stop(self, model: ModelId, node: NodeId, before: Before) -> Seen:
        """Wait until the probe shows the memory of a stopped model; not back in time is told."""
        world = self._world()
        status, here = world.models.get(model), world.nodes.get(node)
        if status is None or here is None or before.sample is None:
            return Seen()
        expected = expected_back(status, here)
        if freed_bytes(before.sample, before.sample, expected) is None:
            return Seen()  # nothing is told of the places where it is
        until_s = self._clock.monotonic_s() + BACK_WITHIN_S
        while True:
            after = await self._sample_now(node)
            if after is None:
                return Seen()
            # What loads at the same time takes hides what comes back.
            growth = growing(self._world(), status, self._begun)
            freed = None if growth else freed_bytes(before.sample, after, expected)
            if is_back(before.sample, after, expected, growth):
                return Seen(freed_bytes=freed)
            if self._clock.monotonic_s() >= until_s:
                self._not_back(status, sum(expected.values()), freed or 0)
                return Seen(is_back=False, freed_bytes=max(0, freed or 0))
            await self._clock.sleep(LOOK_AGAIN_S)

    @asynccontextmanager
    async def one_at_a_time(self, node: NodeId) -> AsyncIterator[None]:
        """Stops on one node follow each other, so that each is seen for itself.

        One that hangs holds up the others for a moment only, and where nothing is seen there
        is nothing to wait for.
        """
        here = self._world().nodes.get(node)
        if here is None or sample_of(here) is None:
            yield
            return
        gate = self._gates.setdefault(node, asyncio.Lock())
        try:
            async with self._clock.timeout(GATE_S):
                await gate.acquire()
        except TimeoutError:
            yield
            return
        try:
            yield
        finally:
            gate.release()

    async def _sample_now(self, node: NodeId) -> Sample | None:
        if not await self._look_soon(node):
            return None
        here = self._world().nodes.get(node)
        return None if here is None else sample_of(here)

    async def _look_soon(self, node: NodeId) -> bool:
        try:
            async with self._clock.timeout(LOOK_REAL_S * max(1.0, self._clock.scale)):
                await self._look(node)
        except TimeoutError:
            return False
        return True

    def _not_back(self, status: ModelStatus, expected: int, freed: int) -> None:
        _log.warning(
            "unload_not_verified",
            model=status.model,
            node=status.node,
            expected_bytes=expected,
            freed_bytes=freed,
        )
        self._told += 1
        now_s = self._clock.now_s()
        decision = Decision(
            policy=POLICY,
            subject=status.model,
            outcome=Outcome.HOLD,
            reason=Reason.MEMORY_NOT_BACK,
            evidence=(
                ("node", status.node),
                ("expected_mb", expected // 1024**2),
                ("freed_mb", freed // 1024**2),
                ("waited_s", BACK_WITHIN_S),
            ),
            decision_id=f"memory-{now_s:.3f}-{self._told}",
            made_at_s=now_s,
        )
        self._decided((decision,))
