"""A policy plays live requests in a ghost of the world (mode ``shadow``): pure, nothing is real.

The same fold and planner as in earnest; only what LocalAI would do is made up: a load takes
the model's measured load time, an unload none, and a request is served for as long as requests
for its model usually are, without waiting for a slot. Time is an argument.
"""

from __future__ import annotations

import heapq
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TypedDict

from contracts.config import PlannerConfig
from contracts.events import (
    AnyEvent,
    LoadCause,
    ModelLoaded,
    ModelUnloaded,
    PriorityClass,
    RequestCompleted,
    RequestDispatched,
    RequestReceived,
)
from contracts.forecasts import Forecasts
from contracts.ids import ModelId, RequestId
from contracts.plan import LoadModel, PlannerState, UnloadModel
from contracts.world import Mode, ModelStatus, Residency, WorldSnapshot
from controller.fold import commit, fold
from controller.planner import plan
from controller.policies.base import expected_load_s

BLOCK_S = 600.0
MAX_BLOCKS = 1008
"""A week of blocks of ten minutes; older ones are forgotten."""

MAX_OPEN = 2000
"""Requests that one ghost has open; beyond it new ones are left out and counted."""

MAX_STEPS_AT_ONCE = 200
"""Ends and runs of the planner between two looks: a ghost that fell behind does not hold up
the real planner; it jumps."""

MIN_TICK_S = 1.0
SOURCE = "ghost"
_LOADED, _ENDED = "loaded", "ended"


class _Stamp(TypedDict):
    event_id: str
    at_s: float
    source: str


@dataclass(slots=True)
class _Request:
    model: ModelId
    at_s: float
    service_s: float
    begun: bool = False


@dataclass(slots=True)
class Counts:
    """Requests of one block, those that met a cold model, those that waited past their target."""

    arrivals: int = 0
    cold: int = 0
    late: int = 0


class Rehearsal:
    """One policy's ghost. ``left_out``: requests not played since too many were open."""

    def __init__(self, policy: str, world: WorldSnapshot, config: PlannerConfig) -> None:
        self.policy = policy
        self.left_out = 0
        self.loads = 0
        self.prefetches = 0
        self.blocks: OrderedDict[int, Counts] = OrderedDict()
        # An unload takes no time here, so that no busy model can be asked to go in its turn.
        self._config = replace(config, policy=policy, turn_s=None)
        self._state = PlannerState()
        self._world = _ghost_of(world)
        self._ends: list[tuple[float, int, str, str]] = []
        self._open: dict[RequestId, _Request] = {}
        self._number = 0
        self._tick_at_s = self._world.taken_at_s

    def arrived(
        self, model: ModelId, at_s: float, *, service_s: float, forecasts: Forecasts
    ) -> None:
        """A live request, played here as well."""
        self.advance(at_s, forecasts)
        if model not in self._world.models or len(self._open) >= MAX_OPEN:
            self.left_out += 1
            return
        now_s = self._world.taken_at_s
        request_id = RequestId(f"{self.policy}-{self._number}")
        self._open[request_id] = _Request(model, now_s, service_s)
        self._fold(
            RequestReceived(
                **self._stamp(),
                request_id=request_id,
                model=model,
                operation="chat",
                priority=PriorityClass.REALTIME,
                client="",
                stream=False,
            )
        )
        self._serve(model)
        self._plan(forecasts)

    def advance(self, now_s: float, forecasts: Forecasts) -> None:
        """What ends until ``now_s``, and the runs of the planner that are due by then."""
        for _ in range(MAX_STEPS_AT_ONCE):
            end_s = self._ends[0][0] if self._ends else float("inf")
            if min(end_s, self._tick_at_s) > now_s:
                break
            self._pass_to(min(end_s, self._tick_at_s))
            if end_s <= self._tick_at_s:
                _, _, kind, subject = heapq.heappop(self._ends)
                self._end(kind, subject)
            self._plan(forecasts)
        self._pass_to(now_s)

    def refresh(self, live: WorldSnapshot) -> None:
        """Take over what is known of models and nodes by now; residency is the ghost's own."""
        models = dict(self._world.models)
        for name, status in _ghost_of(live).models.items():
            mine = models.get(name)
            if mine is None:
                models[name] = replace(status, residency=Residency.COLD)
            else:
                models[name] = replace(
                    mine, footprint_bytes=status.footprint_bytes, load_s=status.load_s
                )
        self._world = replace(self._world, models=models, nodes=live.nodes, slas=live.slas)

    def figures(self) -> Counts:
        """Over all blocks that are remembered."""
        total = Counts()
        for one in self.blocks.values():
            total.arrivals += one.arrivals
            total.cold += one.cold
            total.late += one.late
        return total

    def _plan(self, forecasts: Forecasts) -> None:
        """Plan, and again as long as unloads made room that the next plan may use."""
        unloaded = True
        while unloaded:
            result = plan(
                world=self._world, forecasts=forecasts, state=self._state, config=self._config
            )
            self._state = result.state
            self._world = commit(self._world, result.plan)
            unloads = [a for a in result.plan.actions if isinstance(a, UnloadModel)]
            for action in unloads:
                self._fold(
                    ModelUnloaded(
                        **self._stamp(),
                        model=action.model,
                        node=action.node,
                        cause=action.cause,
                    )
                )
            for load in (a for a in result.plan.actions if isinstance(a, LoadModel)):
                self._load(load)
            unloaded = bool(unloads)
            self._tick_at_s = max(result.next_tick_at_s, self._world.taken_at_s + MIN_TICK_S)

    def _load(self, action: LoadModel) -> None:
        self.loads += 1
        self.prefetches += action.cause is LoadCause.PREFETCH
        load_s = expected_load_s(self._world.models[action.model])
        self._later(load_s, _LOADED, action.model)

    def _end(self, kind: str, subject: str) -> None:
        """A load or a request ends."""
        if kind == _LOADED:
            status = self._world.models[ModelId(subject)]
            self._fold(
                ModelLoaded(
                    **self._stamp(),
                    model=status.model,
                    node=status.node,
                    cause=status.load_cause or LoadCause.DEMAND,
                    load_s=None,
                    footprint_bytes=None,
                )
            )
            self._serve(status.model)
            return
        request_id = RequestId(subject)
        request = self._open.pop(request_id)
        self._fold(
            RequestCompleted(
                **self._stamp(),
                request_id=request_id,
                model=request.model,
                status=200,
                duration_s=self._world.taken_at_s - request.at_s,
                service_s=request.service_s,
                input_tokens=None,
                output_tokens=None,
            )
        )

    def _serve(self, model: ModelId) -> None:
        """Those that wait for a model that is hot now; each is counted as it begins."""
        status = self._world.models[model]
        if status.residency is not Residency.HOT:
            return
        waiting = [
            (request_id, request)
            for request_id, request in self._open.items()
            if request.model == model and not request.begun
        ]
        for request_id, request in waiting:
            request.begun = True
            wait_s = self._world.taken_at_s - request.at_s
            self._count(request, wait_s)
            self._fold(
                RequestDispatched(
                    **self._stamp(),
                    request_id=request_id,
                    model=model,
                    node=status.node,
                    queue_wait_s=wait_s,
                    cold=wait_s > 0.0,
                )
            )
            self._later(request.service_s, _ENDED, request_id)

    def _count(self, request: _Request, wait_s: float) -> None:
        counts = self.blocks.setdefault(int(request.at_s // BLOCK_S), Counts())
        sla = self._world.slas.get(request.model)
        counts.arrivals += 1
        counts.cold += wait_s > 0.0
        counts.late += wait_s > (self._config.default_target_s if sla is None else sla.target_s)
        while len(self.blocks) > MAX_BLOCKS:
            self.blocks.popitem(last=False)

    def _later(self, in_s: float, kind: str, subject: str) -> None:
        self._number += 1
        entry = (self._world.taken_at_s + in_s, self._number, kind, subject)
        heapq.heappush(self._ends, entry)

    def _pass_to(self, now_s: float) -> None:
        """A ghost's time never goes back, whatever gateways' clocks say."""
        if now_s > self._world.taken_at_s:
            self._world = replace(self._world, taken_at_s=now_s)

    def _fold(self, event: AnyEvent) -> None:
        self._world = fold(self._world, event)

    def _stamp(self) -> _Stamp:
        self._number += 1
        return _Stamp(
            event_id=f"{self.policy}-e{self._number}",
            at_s=self._world.taken_at_s,
            source=SOURCE,
        )


def _ghost_of(world: WorldSnapshot) -> WorldSnapshot:
    """The world without anything under way; what is hot stays hot."""
    models = {
        name: ModelStatus(
            model=name,
            node=status.node,
            residency=Residency.HOT if status.residency is Residency.HOT else Residency.COLD,
            residency_since_s=status.residency_since_s,
            last_used_at_s=status.last_used_at_s,
            arrivals=status.arrivals,
            pinned=status.pinned,
            footprint_bytes=status.footprint_bytes,
            load_s=status.load_s,
        )
        for name, status in world.models.items()
    }
    return WorldSnapshot(
        taken_at_s=world.taken_at_s,
        mode=Mode.ACTIVE,
        nodes=world.nodes,
        models=models,
        slas=world.slas,
    )
