"""Carries out plans: drains, unloads and loads, each as a task that ends in an event.

A load waits for the unloads that make its room. An unload happens only when every living
gateway has acknowledged the drain with nothing in flight and LocalAI's monitor does not call
the model busy; otherwise it is given up and planned anew. Each order checks the lease first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import structlog

from contracts.config import ControllerConfig
from contracts.errors import Busy, HeadstartError, Permanent, Transient
from contracts.events import (
    AnyEvent,
    ModelLoaded,
    ModelLoadStarted,
    ModelUnloaded,
    NodeLost,
    UnloadCause,
)
from contracts.ids import ModelId, NodeId
from contracts.plan import LoadModel, Plan, UnloadModel, WarmFile
from contracts.ports import Clock, ModelServer
from controller.copies import Copy
from controller.fold import LOAD_KIND, UNLOAD_KIND
from controller.memory_desk import SEEN_NOTHING, MemoryDesk, Seen, blind_desk
from controller.outcomes import Outcomes
from controller.roster import GONE_AFTER_S, DrainVerdict, Roster
from controller.stamps import Stamp
from controller.warmups import WarmUps

_log = structlog.get_logger("headstart.controller")

UNLOAD_COPY_KIND = "unload_copy"
"""Of actions on a copy that is not at home: they say nothing of the home."""

COPY_NOTICE_S = 2.0
"""Gateways have the table that leaves a copy out by then."""


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why an unload was given up. ``is_refused``: LocalAI would not, or did not answer."""

    why: str
    is_refused: bool = False


_LOST = Obstacle("the lease was lost")
_BUSY = Obstacle("LocalAI calls it busy")


class Reconciler:
    """Owns the tasks of what is ordered.

    Parameters
    ----------
    emit : callable
        Told each event at once; folds and logs it.
    drains_changed : callable
        Called when ``draining`` changed: gateways must be told.
    leads : callable
        Whether the lease is still ours.
    is_waited_for : callable
        Whether anybody still waits for a model: a busy one is not drained for nobody.
    warm : callable
        Begins to read a model's files ahead.
    turn : callable
        A block in which nobody else loads on a node; raises Transient when somebody does.
    memory : MemoryDesk or None
        Measures loads, and says when the memory of a stopped model is back; None: nobody does.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        servers: Mapping[NodeId, ModelServer],
        config: ControllerConfig,
        stamp: Callable[[], Stamp],
        emit: Callable[[AnyEvent], None],
        drains_changed: Callable[[], None],
        leads: Callable[[], bool],
        is_waited_for: Callable[[ModelId], bool] = lambda _model: True,
        memory: MemoryDesk | None = None,
        warm: Callable[[WarmFile], None] = lambda _action: None,
        turn: Callable[[NodeId], AbstractAsyncContextManager[None]] = lambda _node: nullcontext(),
    ) -> None:
        self._clock = clock
        self._servers = servers
        self._config = config
        self._stamp = stamp
        self._emit = emit
        self._drains_changed = drains_changed
        self._leads = leads
        self._is_waited_for = is_waited_for
        self._warm = warm
        self._turn = turn
        self._outcomes = Outcomes(emit, stamp)
        self._memory = blind_desk(clock) if memory is None else memory
        self._seen: dict[ModelId, Seen] = {}
        self._makes_room_for: dict[ModelId, ModelId] = {}
        self._roster = Roster()
        self._began_s = clock.monotonic_s()
        self._is_closed = False
        self._heard = asyncio.Event()
        self._warm_ups = WarmUps(
            clock=clock,
            servers=servers,
            profiles=lambda: self._config.profiles,
            stamp=stamp,
            emit=emit,
        )
        self._tasks: set[asyncio.Task[bool]] = set()
        self._loading: set[asyncio.Task[bool]] = set()
        self._unloads: dict[ModelId, asyncio.Task[bool]] = {}
        self.draining: dict[ModelId, str] = {}
        self.preempting: set[ModelId] = set()
        self.leaving: set[Copy] = set()

    def reconfigure(self, config: ControllerConfig) -> None:
        """The configuration has changed: its time limits hold for what is ordered from now on."""
        self._config = config

    def order(self, plan: Plan) -> None:
        """Begin every action of ``plan``; unloads before the loads that wait for them."""
        for action in plan.actions:
            match action:
                case UnloadModel():
                    task = self._begin(self._unload(action))
                    if action.cause is not UnloadCause.GHOST:
                        self._unloads[action.model] = task
                case LoadModel():
                    awaited = [self._unloads[name] for name in action.after]
                    self._makes_room_for.update(dict.fromkeys(action.after, action.model))
                    self._begin(self._load_after(action, awaited))
                case WarmFile():
                    self._warm(action)
                case _:
                    _log.error("action_not_supported", action=type(action).__name__)

    def order_copies(self, plan: Plan) -> None:
        """Unload copies that are not at home; one that goes already is left to that."""
        for action in plan.actions:
            assert isinstance(action, UnloadModel)
            copy = Copy(action.model, action.node)
            if copy not in self.leaving:
                self.leaving.add(copy)
                self._begin(self._unload_copy(action, copy))

    def heard(self, roster: Roster) -> None:
        """Gateways spoke; drains that wait look again."""
        self._roster = roster
        self._heard.set()

    async def close(self) -> None:
        """Stop leading: what has not begun is given up, loads that run go on to their end.

        LocalAI kills a load whose caller leaves and cools the model down. The next leader
        orders the same load, which joins the running one.
        """
        self._is_closed = True
        given_up = self._tasks - self._loading
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        await self._warm_ups.close()
        self.draining.clear()
        self.preempting.clear()
        self.leaving.clear()

    def _begin(self, work: Coroutine[Any, Any, bool]) -> asyncio.Task[bool]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[bool]) -> None:
        self._tasks.discard(task)
        self._loading.discard(task)
        if not task.cancelled() and task.exception() is not None:
            # A bug, not an expected failure: those end in events. Say so loudly.
            _log.error("action_crashed", exc_info=task.exception())

    async def _load_after(self, action: LoadModel, awaited: list[asyncio.Task[bool]]) -> bool:
        for unload in awaited:
            if not await asyncio.shield(unload):
                self._outcomes.load_given_up(action, "no room was made")
                return False
        if not self._leads():
            self._outcomes.load_given_up(action, "the lease was lost")
            return False
        task = asyncio.current_task()
        assert task is not None
        self._loading.add(task)
        try:
            async with self._turn(action.node):
                return await self._load(action)
        except Transient as error:
            self._outcomes.load_given_up(action, str(error))
            return False

    async def _load(self, action: LoadModel) -> bool:
        before = self._memory.before(action.model, action.node)
        self._emit(
            ModelLoadStarted(
                **self._stamp(), model=action.model, node=action.node, cause=action.cause
            )
        )
        started_s = self._clock.monotonic_s()
        try:
            async with self._clock.timeout(self._config.load_timeout_s):
                await self._servers[action.node].load(action.model)
        except TimeoutError:
            limit_s = self._config.load_timeout_s
            self._outcomes.load_failed(
                action, f"not loaded within {limit_s:g} s", None, before.free_bytes
            )
            return False
        except HeadstartError as error:
            retry_after_s = error.retry_after_s if isinstance(error, Transient) else None
            if isinstance(error, Transient) and retry_after_s is None and not self._is_closed:
                # LocalAI itself did not say so: it may be gone, and then another node is asked.
                await self._look_whether_lost(action.node)
            self._outcomes.load_failed(action, str(error), retry_after_s, before.free_bytes)
            return False
        took_s = self._clock.monotonic_s() - started_s
        footprint_bytes, split = await self._memory.after_load(
            action.model, action.node, before, took_s
        )
        self._emit(
            ModelLoaded(
                **self._stamp(),
                model=action.model,
                node=action.node,
                cause=action.cause,
                load_s=took_s,
                footprint_bytes=footprint_bytes,
                split=split,
            )
        )
        self._outcomes.applied(action.action_id, LOAD_KIND, action.model, took_s)
        _log.info(
            "model_loaded",
            model=action.model,
            node=action.node,
            cause=action.cause.value,
            load_s=round(took_s, 3),
        )
        if not self._is_closed:
            self._warm_ups.begin(action)
        return True

    async def _look_whether_lost(self, node: NodeId) -> None:
        if node not in self._servers:
            return  # it has left, and is forgotten
        try:
            await self._servers[node].report()
        except HeadstartError as error:
            if node in self._servers:  # else it has left meanwhile, and would come back by this
                self._emit(NodeLost(**self._stamp(), node=node, error=str(error)))

    async def _unload(self, action: UnloadModel) -> bool:
        started_s = self._clock.monotonic_s()
        if action.cause is UnloadCause.GHOST:
            obstacle = await self._forget_ghost(action)
        else:
            obstacle = await self._drain_and_stop(action)
        if obstacle is not None:
            self._given_up(action, UNLOAD_KIND, obstacle)
            return False
        seen = self._seen.pop(action.model, SEEN_NOTHING)
        self._gone(action, UNLOAD_KIND, started_s, seen)
        return seen.is_back

    def _gone(
        self, action: UnloadModel, kind: str, started_s: float, seen: Seen = SEEN_NOTHING
    ) -> None:
        self._emit(
            ModelUnloaded(
                **self._stamp(),
                model=action.model,
                node=action.node,
                cause=action.cause,
                memory_seen=seen.is_back,
                freed_bytes=seen.freed_bytes,
            )
        )
        took_s = self._clock.monotonic_s() - started_s
        self._outcomes.applied(action.action_id, kind, action.model, took_s)
        _log.info(
            "model_unloaded", model=action.model, node=action.node, reason=action.reason.value
        )

    async def _unload_copy(self, action: UnloadModel, copy: Copy) -> bool:
        """Gateways are told first; LocalAI's monitor then says when the last request has ended."""
        started_s = self._clock.monotonic_s()
        self._drains_changed()
        try:
            await self._clock.sleep(COPY_NOTICE_S)
            obstacle = await self._stop_idle(action)
        finally:
            self.leaving.discard(copy)
        if obstacle is not None:
            self._given_up(action, UNLOAD_COPY_KIND, obstacle)
            return False
        self._gone(action, UNLOAD_COPY_KIND, started_s)
        return True

    async def _forget_ghost(self, action: UnloadModel) -> Obstacle | None:
        """None once LocalAI no longer lists a model whose process is dead."""
        server = self._servers[action.node]
        try:
            if await server.is_busy(action.model) is not None:
                return Obstacle("its process answers")
            if not self._leads():
                return _LOST
            await server.unload(action.model)
        except (Transient, Permanent) as error:
            return Obstacle(str(error), is_refused=True)
        return None

    async def _drain_and_stop(self, action: UnloadModel) -> Obstacle | None:
        """None once LocalAI has stopped it, else what was in the way."""
        self.draining[action.model] = action.action_id
        if action.preempt:
            self.preempting.add(action.model)
        self._drains_changed()
        try:
            return await self._stop_drained(action)
        finally:
            self._unloads.pop(action.model, None)
            self.draining.pop(action.model, None)
            self._makes_room_for.pop(action.model, None)
            self.preempting.discard(action.model)

    async def _stop_drained(self, action: UnloadModel) -> Obstacle | None:
        if not await self._drained(action):
            return Obstacle("it is in use")
        model, node = action.model, action.node
        async with self._memory.one_at_a_time(node):
            before = await self._memory.before_stop(model, node)
            obstacle = await self._stop_idle(action)
            if obstacle is None:
                self._seen[model] = await self._memory.after_stop(model, node, before)
        return obstacle

    async def _stop_idle(self, action: UnloadModel) -> Obstacle | None:
        server = self._servers[action.node]
        await self._warm_ups.stop(action.model)
        try:
            if await server.is_busy(action.model):
                return _BUSY
            if not self._leads():
                return _LOST
            await server.unload(action.model)
        except Busy:
            return _BUSY
        except (Transient, Permanent) as error:
            return Obstacle(str(error), is_refused=True)
        return None

    async def _drained(self, action: UnloadModel) -> bool:
        # Just begun, we know no gateway; there are none only when none has spoken for so long.
        await self._clock.sleep(self._began_s + GONE_AFTER_S - self._clock.monotonic_s())
        limit_s = max(self._config.drain_timeout_s, action.drain_s or 0.0)
        try:
            async with self._clock.timeout(limit_s):
                while True:
                    verdict = self._roster.drain(action.action_id, action.model)
                    if verdict is DrainVerdict.CLEAR:
                        return True
                    if verdict is DrainVerdict.BUSY and not self._waits_for_end(action):
                        return False
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            return False

    def _waits_for_end(self, action: UnloadModel) -> bool:
        """Whether a drain goes on although requests run: in a turn, for whom somebody waits."""
        wanted = self._makes_room_for.get(action.model)
        return action.drain_s is not None and (wanted is None or self._is_waited_for(wanted))

    def _given_up(self, action: UnloadModel, kind: str, obstacle: Obstacle) -> None:
        self._outcomes.failed(
            action.action_id, kind, action.model, obstacle.why, is_refused=obstacle.is_refused
        )
