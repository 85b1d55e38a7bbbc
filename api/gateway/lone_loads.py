"""Loads that this gateway orders itself, while no controller answers. The last resort."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial

import structlog

from api.gateway.admission import Admission
from api.gateway.ghosts import clear_ghost
from api.gateway.metrics import GatewayMetrics
from api.gateway.residency import Kind, RouteBook
from api.gateway.telemetry import Telemetry
from contracts.errors import HeadstartError, Transient
from contracts.events import (
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    UnloadCause,
)
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.ports import Clock, LoadLock, ModelServer, node_lock

TURN_S = 15.0
"""A busy model that this gateway has loaded keeps its place for so long (``scheduler.turn_seconds``
is the controller's)."""

DRAIN_S = 60.0
"""How long its last requests may take to end; else the load is tried beside it."""

LOCK_HOLD_REAL_S = 30.0
_RENEW_REAL_S = 10.0
_LOOK_REAL_S = 0.5
_ASK_AGAIN_REAL_S = 0.2
_SHORTEST_COOLDOWN_S = 0.5
_LOOK_S = 0.25

_log = structlog.get_logger("gateway")

Ended = Callable[[ModelId, HeadstartError | None], None]


class LoneLoads:
    """One load per model at a time, in a task of its own that no caller's leaving cancels.

    Loads run one after another, so that all who wait for a model are served before the next
    load may stop it, and the most due goes first. On one node gateways load one after another
    too, and each looks first what is there by now: none gives out what another has just filled.
    ``on_end`` hears of each end, with the error of one that failed. ``is_due`` is asked before
    each: a controller that is back does what is left.
    """

    def __init__(
        self,
        *,
        owner: GatewayId,
        servers: Mapping[NodeId, ModelServer],
        lock: LoadLock | None,
        book: RouteBook,
        admission: Admission,
        telemetry: Telemetry,
        metrics: GatewayMetrics,
        clock: Clock,
    ) -> None:
        self._owner = owner
        self._servers = servers
        self._lock = lock
        self._book = book
        self._admission = admission
        self._telemetry = telemetry
        self._metrics = metrics
        self._clock = clock
        self._turn = asyncio.Condition()
        self._loading: ModelId | None = None
        self._pending: dict[ModelId, None] = {}
        self._loaded_s: dict[ModelId, float] = {}
        self._began_s: dict[ModelId, float] = {}
        self._tasks: dict[ModelId, asyncio.Task[None]] = {}
        self.on_end: Ended = lambda _model, _error: None
        self.is_due: Callable[[ModelId], bool] = lambda _model: True

    def start(self, model: ModelId, node: NodeId) -> None:
        """Load ``model`` on ``node``; nothing happens while its load runs already."""
        if model not in self._tasks:
            if node not in self._servers:
                # Another gateway's node: requests go to our own, so that is where to load.
                node = next(iter(self._servers))
            _log.warning("load_without_controller", model=model, node=node)
            task = asyncio.get_running_loop().create_task(self._run(model, node))
            self._tasks[model] = task

    def give_up(self) -> None:
        """Cut all loads off."""
        for task in self._tasks.values():
            task.cancel()

    async def close(self, grace_s: float) -> None:
        """Let loads end, since cutting one off makes LocalAI cool down; then cancel them."""
        tasks = set(self._tasks.values())
        try:
            async with self._clock.timeout(grace_s):
                while any(not task.done() for task in tasks):
                    await asyncio.wait(tasks)
        except TimeoutError:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _run(self, model: ModelId, node: NodeId) -> None:
        error: HeadstartError | None = None
        try:
            async with self._next_turn(model):
                node = self._home(model, node)
                is_adopted = partial(self._is_adopted, model, node)
                async with (
                    self._locked(model, model) as has_model,
                    self._locked(model, node_lock(node), until=is_adopted) as has_node,
                ):
                    if has_model and has_node:
                        await self._load(model, node)
        except HeadstartError as failure:
            error = failure
        finally:
            del self._tasks[model]
            self._began_s.pop(model, None)
            self.on_end(model, error)

    def _home(self, model: ModelId, node: NodeId) -> NodeId:
        """Where it is to be by now: turns take their time, and a new leader may have moved it."""
        home = self._book.standing(model, self._clock.now_s()).node
        return node if home is None or home not in self._servers else home

    @asynccontextmanager
    async def _next_turn(self, model: ModelId) -> AsyncIterator[None]:
        """One load at a time, the most due of those that wait for their turn."""
        self._pending[model] = None
        try:
            async with self._turn:
                await self._turn.wait_for(
                    lambda: self._loading is None and min(self._pending, key=self._due_s) == model
                )
                self._loading = model
            yield
        finally:
            del self._pending[model]
            if self._loading == model:
                self._loading = None
            async with self._turn:
                self._turn.notify_all()

    def _due_s(self, model: ModelId) -> float:
        expected_s = self._book.progress(model, now_s=self._clock.now_s(), waited_s=0.0).expected_s
        return self._admission.model_standing_s(model, expected_s or 0.0)

    async def _load(self, model: ModelId, node: NodeId) -> None:
        """On ``node``; where that is away, on another one that knows the model."""
        others = [
            copy.node
            for copy in self._book.copies(model)
            if copy.node != node and copy.is_alive and copy.node in self._servers
        ]
        for other in others:
            try:
                await self._load_on(model, node)
            except Transient as error:
                if error.retry_after_s is not None:
                    raise  # LocalAI's own word: the model fails, not the node
                _log.warning("load_tried_elsewhere", model=model, node=other, error=str(error))
                node = other
            else:
                return
        await self._load_on(model, node)

    async def _load_on(self, model: ModelId, node: NodeId) -> None:
        if self._book.is_ghost(model):
            # LocalAI would say that it is loaded.
            await clear_ghost(self._servers, model, node)
        await self._look(node)
        await self._make_room(model, node)
        if not self.is_due(model):
            return  # making room takes its time, and a controller is back
        started_s = self._clock.monotonic_s()
        self._began_s[model] = self._clock.now_s()
        self._telemetry.emit(
            ModelLoadStarted(
                **self._telemetry.stamp(), model=model, node=node, cause=LoadCause.GATEWAY
            )
        )
        try:
            await self._load_patiently(model, node)
        except HeadstartError as error:
            retry_after_s = error.retry_after_s if isinstance(error, Transient) else None
            self._fail(model, node, str(error), retry_after_s)
            raise
        except asyncio.CancelledError:
            self._fail(model, node, "the gateway stops", None)
            raise
        load_s = self._clock.monotonic_s() - started_s
        self._loaded_s[model] = self._clock.monotonic_s()
        self._book.note_loaded(model, node, now_s=self._clock.now_s(), load_s=load_s)
        self._metrics.lone_load("loaded")
        self._telemetry.emit(
            ModelLoaded(
                **self._telemetry.stamp(),
                model=model,
                node=node,
                cause=LoadCause.GATEWAY,
                load_s=load_s,
                footprint_bytes=None,
            )
        )

    async def _look(self, node: NodeId) -> None:
        """What is there by now: other gateways load and stop as well, and no table tells."""
        try:
            report = await self._servers[node].report()
        except HeadstartError as error:
            _log.debug("node_not_looked_at", node=node, error=str(error))
        else:
            now_s = self._clock.now_s()
            for news in self._book.note_residents(node, report.resident, now_s=now_s):
                self.on_end(news, None)

    async def _load_patiently(self, model: ModelId, node: NodeId) -> None:
        """Load; where the load before it was cut off, LocalAI has to cool down first.

        It tells the rest in rounded seconds, so that asking when it said can be too early.
        """
        while True:
            try:
                await self._servers[node].load(model)
            except Transient as error:
                now_s = self._clock.now_s()
                if error.retry_after_s is None or not self._book.is_interrupted(model, now_s):
                    raise
                await self._clock.sleep(max(error.retry_after_s, _SHORTEST_COOLDOWN_S))
            else:
                return

    def _fail(self, model: ModelId, node: NodeId, error: str, retry_after_s: float | None) -> None:
        self._metrics.lone_load("failed")
        if retry_after_s is not None:
            now_s = self._clock.now_s()
            self._book.note_failed(model, node, now_s=now_s, retry_after_s=retry_after_s)
            self._book.note_message(model, error)
        self._telemetry.emit(
            ModelLoadFailed(
                **self._telemetry.stamp(),
                model=model,
                node=node,
                cause=LoadCause.GATEWAY,
                error=error[:200],
                retry_after_s=retry_after_s,
            )
        )

    async def _make_room(self, model: ModelId, node: NodeId) -> None:
        """Stop models while the last table says that it does not fit: idle ones, then others.

        The longest idle go first. Where only busy ones are left each goes in its turn, as a
        controller would have it.
        """
        for only_idle in (True, False):
            for victim in self._book.stoppable(model):
                if not self._book.missing_bytes(model):
                    return
                if victim.node == node and self._admission.is_idle(victim.model) is only_idle:
                    await self._stop(victim.model, node, drain_s=0.0 if only_idle else DRAIN_S)

    async def _stop(self, model: ModelId, node: NodeId, *, drain_s: float) -> None:
        """Stop it once nothing runs there, if that is within ``drain_s``."""
        if drain_s:
            resident_s = self._clock.monotonic_s() - self._loaded_s.get(model, -TURN_S)
            await self._clock.sleep(max(0.0, TURN_S - resident_s))
        self._book.begin_stop(model)
        stopped = False
        try:
            if await self._is_drained(model, drain_s):
                await self._servers[node].unload(model)
                stopped = True
        except HeadstartError as error:
            _log.warning("model_not_stopped", model=model, error=str(error))
        finally:
            self._book.end_stop(model, node, now_s=self._clock.now_s(), stopped=stopped)
            self.on_end(model, None)
        if stopped:
            self._telemetry.emit(
                ModelUnloaded(
                    **self._telemetry.stamp(), model=model, node=node, cause=UnloadCause.GATEWAY
                )
            )

    async def _is_drained(self, model: ModelId, drain_s: float) -> bool:
        since_s = self._clock.monotonic_s()
        while not self._admission.is_idle(model):
            if self._clock.monotonic_s() - since_s >= drain_s:
                return False
            await self._clock.sleep(_LOOK_S)
        return True

    @asynccontextmanager
    async def _locked(
        self, model: ModelId, name: ModelId, *, until: Callable[[], bool] = lambda: False
    ) -> AsyncIterator[bool]:
        """Hold a lock for a load of ``model``; False: that load is not ours any more.

        ``until`` is asked meanwhile whether others may have the lock already.
        """
        if not await self._take_lock(model, name):
            yield False
            return
        keeping = asyncio.get_running_loop().create_task(self._keep_lock(name, until))
        try:
            yield self.is_due(model)
        finally:
            keeping.cancel()
            await self._release_lock(name)

    def _is_adopted(self, model: ModelId, node: NodeId) -> bool:
        """Whether a controller has told since the load began that it knows of it, and where.

        It counts the load's bytes from then on, so that others may load beside it: one that
        hangs would else keep a whole node for as long as LocalAI may take.
        """
        table, began_s = self._book.table, self._began_s.get(model)
        if table is None or began_s is None or table.made_at_s <= began_s:
            return False
        return self._book.is_loading(model, node)

    async def _take_lock(self, model: ModelId, name: ModelId) -> bool:
        """False: somebody else has seen to it meanwhile. Without a lock we go on alone."""
        while self._lock is not None:
            try:
                if await self._lock.take(name, self._owner, hold_s=LOCK_HOLD_REAL_S):
                    return True
            except HeadstartError:
                return True
            await self._clock.sleep(_ASK_AGAIN_REAL_S * self._clock.scale)
            is_wanted = self._book.standing(model, self._clock.now_s()).kind is Kind.WAIT
            if not is_wanted or not self.is_due(model):
                return False
        return True

    async def _keep_lock(self, name: ModelId, until: Callable[[], bool]) -> None:
        kept_s = 0.0
        while self._lock is not None:
            await self._clock.sleep(_LOOK_REAL_S * self._clock.scale)
            if until():
                await self._release_lock(name)
                return
            kept_s += _LOOK_REAL_S
            if kept_s < _RENEW_REAL_S:
                continue
            kept_s = 0.0
            try:
                await self._lock.take(name, self._owner, hold_s=LOCK_HOLD_REAL_S)
            except HeadstartError as error:
                _log.debug("load_lock_not_renewed", lock=name, error=str(error))

    async def _release_lock(self, name: ModelId) -> None:
        if self._lock is None:
            return
        try:
            await self._lock.release(name, self._owner)
        except HeadstartError as error:
            # It frees itself soon.
            _log.debug("load_lock_not_released", lock=name, error=str(error))
