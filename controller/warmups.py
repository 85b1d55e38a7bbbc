"""The first inference of a model that was loaded ahead of its use, so that no caller pays for it.

A load that somebody waits for needs none: the request that waits is the first inference.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from contracts.config import ModelProfile, WarmUp
from contracts.errors import HeadstartError
from contracts.events import ActionApplied, ActionFailed, AnyEvent, LoadCause
from contracts.ids import ModelId, NodeId
from contracts.plan import LoadModel
from contracts.ports import Clock, ModelServer
from controller.stamps import Stamp

_log = structlog.get_logger("headstart.controller")

WARM_UP_KIND = "warm_up"
LIMIT_S = 300.0
"""A warm-up that takes longer is given up; the model stays loaded."""

_SOMEBODY_WAITS = frozenset({LoadCause.DEMAND, LoadCause.GATEWAY, LoadCause.EXTERNAL})


class WarmUps:
    """One task for each model that is warmed. What goes wrong is told, and changes nothing else.

    Parameters
    ----------
    profiles : callable
        What is declared of models now; ``warm_up`` says which are warmed.
    """

    def __init__(
        self,
        *,
        clock: Clock,
        servers: Mapping[NodeId, ModelServer],
        profiles: Callable[[], Mapping[ModelId, ModelProfile]],
        stamp: Callable[[], Stamp],
        emit: Callable[[AnyEvent], None],
    ) -> None:
        self._clock = clock
        self._servers = servers
        self._profiles = profiles
        self._stamp = stamp
        self._emit = emit
        self._tasks: dict[ModelId, asyncio.Task[None]] = {}

    def begin(self, action: LoadModel) -> None:
        """The model was loaded just now; warm it, if nobody waits for it and it may be."""
        profile = self._profiles().get(action.model)
        how = WarmUp.AUTO if profile is None else profile.warm_up
        if action.cause in _SOMEBODY_WAITS or how is WarmUp.NEVER or action.model in self._tasks:
            return
        task = asyncio.create_task(self._warm(action, thorough=how is WarmUp.ALWAYS))
        self._tasks[action.model] = task
        task.add_done_callback(lambda _done: self._tasks.pop(action.model, None))

    async def stop(self, model: ModelId) -> None:
        """The model is to go: LocalAI would call it busy, and wait."""
        task = self._tasks.get(model)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def close(self) -> None:
        """Give all of them up."""
        for model in list(self._tasks):
            await self.stop(model)

    async def _warm(self, action: LoadModel, *, thorough: bool) -> None:
        started_s = self._clock.monotonic_s()
        server = self._servers[action.node]
        try:
            async with self._clock.timeout(LIMIT_S):
                is_warm = await server.warm(action.model, thorough=thorough)
        except TimeoutError:
            self._failed(action, f"no answer within {LIMIT_S:g} s")
        except HeadstartError as error:
            self._failed(action, str(error))
        else:
            took_s = self._clock.monotonic_s() - started_s
            if not is_warm:
                _log.info("model_not_warmed", model=action.model, why="no small request")
                return
            self._emit(
                ActionApplied(
                    **self._stamp(),
                    action_id=f"{action.action_id}-warm",
                    kind=WARM_UP_KIND,
                    subject=action.model,
                    took_s=took_s,
                )
            )
            _log.info("model_warmed", model=action.model, took_s=round(took_s, 3))

    def _failed(self, action: LoadModel, error: str) -> None:
        self._emit(
            ActionFailed(
                **self._stamp(),
                action_id=f"{action.action_id}-warm",
                kind=WARM_UP_KIND,
                subject=action.model,
                error=error,
            )
        )
        _log.warning("warm_up_failed", model=action.model, error=error)
