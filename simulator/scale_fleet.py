"""Many models on many nodes in virtual time, cheap enough for a thousand requests a second.

What matters to who decides is here: which model is where, how long a load takes, how much a
node holds, who asks for what and when. Slots are not: a request that is let go is served at once.
Loads never fail here. One that orders what the node has no room for is told so.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypedDict

from contracts.events import (
    ActionFailed,
    AnyEvent,
    ModelLoaded,
    ModelLoadStarted,
    ModelUnloaded,
    NodeObserved,
)
from contracts.ids import ModelId, NodeId
from contracts.plan import LoadModel, UnloadModel
from contracts.readings import GpuReading, ProbeReading
from contracts.world import Mode, ModelStatus, NodeStatus, Residency, WorldSnapshot

GIB = 1024**3
SIZES_GIB = (1.2, 2.5, 4.7, 4.7, 5.2, 8.1, 9.3)
BUSY_SHARE = 0.6
"""Models that are asked for all the time, and are resident at the beginning."""
RARE_REQUESTS = 0.001
"""Share of all requests that is for one of the others."""
SKEW = 0.8
SPARE_RATIO = 0.25
"""Room of a node beyond its busy models, for the others in turns."""
POLL_S = 5.0
SOURCE = "node"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaleSize:
    """How much there is of everything.

    Attributes
    ----------
    listed_on : int
        Nodes that list a model and could serve it; 0: all, as where they share a models folder.
    """

    models: int = 1000
    nodes: int = 100
    requests_per_s: float = 1000.0
    gateways: int = 4
    listed_on: int = 0


class _Stamp(TypedDict):
    event_id: str
    at_s: float
    source: str


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as its caller sees it; times in seconds."""

    at_s: float
    model: ModelId
    first_s: float
    service_s: float


class ScaleFleet:
    """Nodes with what is resident there, and the traffic.

    Parameters
    ----------
    reserve_ratio : float
        The planner's own, so that its budget holds the busy models.
    """

    def __init__(self, size: ScaleSize, *, seed: int, start_s: float, reserve_ratio: float) -> None:
        self.size = size
        self._random = Random(seed)
        self._start_s = start_s
        self.models = tuple(ModelId(f"model-{number:05}") for number in range(size.models))
        self.nodes = tuple(NodeId(f"node-{number:04}") for number in range(size.nodes))
        self._bytes = {model: int(self._random.choice(SIZES_GIB) * GIB) for model in self.models}
        busy = max(1, int(BUSY_SHARE * size.models))
        self._busy, self._rare = self.models[:busy], self.models[busy:]
        self._shares = list(
            itertools.accumulate((rank + 1) ** -SKEW for rank in range(len(self._busy)))
        )
        self._home = {
            model: self.nodes[number % size.nodes] for number, model in enumerate(self.models)
        }
        self._resident: dict[NodeId, dict[ModelId, None]] = {node: {} for node in self.nodes}
        self._used_bytes = dict.fromkeys(self.nodes, 0)
        for model in self._busy:
            self._put(model, self._home[model])
        largest = max(self._bytes.values())
        self._capacity_bytes = {
            node: int((self._used_bytes[node] * (1 + SPARE_RATIO) + largest) / (1 - reserve_ratio))
            for node in self.nodes
        }
        self._loading: dict[ModelId, LoadModel] = {}
        self._due: list[tuple[float, int, LoadModel]] = []
        self._ids = itertools.count()
        self._in_flight: dict[ModelId, int] = {}
        self.loads = 0

    def world(self) -> WorldSnapshot:
        """What a controller knows that has looked at every node."""
        models = {
            model: ModelStatus(
                model=model,
                node=self._home[model],
                footprint_bytes=self._bytes[model],
                load_s=self._load_s(model),
                residency=Residency.HOT if self._is_hot(model) else Residency.COLD,
                residency_since_s=self._start_s,
                last_used_at_s=self._start_s,
            )
            for model in self.models
        }
        lists = self._lists()
        nodes = {
            node: NodeStatus(
                node=node,
                alive=True,
                seen_at_s=self._start_s,
                memory_total_bytes=self._capacity_bytes[node],
                memory_used_bytes=self._used_bytes[node],
                accelerator="cuda",
                lists=lists[node],
                residents=tuple(self._resident[node]),
            )
            for node in self.nodes
        }
        return WorldSnapshot(taken_at_s=self._start_s, mode=Mode.ACTIVE, models=models, nodes=nodes)

    def asks(self, begin_s: float, span_s: float) -> list[Ask]:
        """The requests of a stretch of time, oldest first."""
        random, per_s = self._random, self.size.requests_per_s
        found = []
        at_s = begin_s
        while (at_s := at_s + random.expovariate(per_s)) < begin_s + span_s:
            if self._rare and random.random() < RARE_REQUESTS:
                model = random.choice(self._rare)
            else:
                (model,) = random.choices(self._busy, cum_weights=self._shares)
            first_s = random.uniform(0.1, 0.4)
            service_s = first_s + random.lognormvariate(0.0, 0.6)
            found.append(Ask(at_s, model, first_s, service_s))
        return found

    def sent(self, model: ModelId, *, by: int) -> None:
        """So many requests more, or fewer, are served by a model."""
        self._in_flight[model] = self._in_flight.get(model, 0) + by

    def order(self, actions: Sequence[object], now_s: float) -> list[AnyEvent]:
        """Carry out what was planned; unloads are done at once, loads when their time is over."""
        gone = [self._unload(one, now_s) for one in actions if isinstance(one, UnloadModel)]
        begun = [self._begin(one, now_s) for one in actions if isinstance(one, LoadModel)]
        return [*gone, *begun]

    def pass_time(self, until_s: float) -> list[AnyEvent]:
        """Loads that have ended, and a look at every node that is due."""
        told: list[AnyEvent] = []
        while self._due and self._due[0][0] <= until_s:
            at_s, _, action = heapq.heappop(self._due)
            del self._loading[action.model]
            told.append(
                ModelLoaded(
                    **self._stamp(at_s),
                    model=action.model,
                    node=action.node,
                    cause=action.cause,
                    load_s=self._load_s(action.model),
                    footprint_bytes=self._bytes[action.model],
                )
            )
        polls = round(POLL_S)
        for number, node in enumerate(self.nodes):
            if (number + int(until_s)) % polls == 0:
                told.append(self._observed(node, until_s))
        return told

    def _observed(self, node: NodeId, at_s: float) -> NodeObserved:
        total, used = self._capacity_bytes[node], self._used_bytes[node]
        gpu = GpuReading(
            uuid=f"GPU-{node}",
            name="card",
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_free_bytes=total - used,
        )
        return NodeObserved(
            **self._stamp(at_s),
            node=node,
            resident=tuple(m for m in self._resident[node] if m not in self._loading),
            busy=(),
            memory_total_bytes=total,
            memory_used_bytes=used,
            model_limit=None,
            used_by_others_bytes=0,
            reading=ProbeReading(at_s=at_s, gpus=(gpu,)),
        )

    def _begin(self, action: LoadModel, now_s: float) -> AnyEvent:
        room = self._capacity_bytes[action.node] - self._used_bytes[action.node]
        if action.model in self._loading or self._is_hot(action.model):
            return self._refused(action.action_id, "load", action.model, now_s)
        if self._bytes[action.model] > room:
            return self._refused(action.action_id, "load", action.model, now_s)
        self.loads += 1
        self._home[action.model] = action.node
        self._put(action.model, action.node)
        self._loading[action.model] = action
        due_s = now_s + self._load_s(action.model)
        heapq.heappush(self._due, (due_s, next(self._ids), action))
        return ModelLoadStarted(
            **self._stamp(now_s), model=action.model, node=action.node, cause=action.cause
        )

    def _unload(self, action: UnloadModel, now_s: float) -> AnyEvent:
        busy = self._in_flight.get(action.model, 0) or action.model in self._loading
        if busy or action.model not in self._resident[action.node]:
            return self._refused(action.action_id, "unload", action.model, now_s)
        del self._resident[action.node][action.model]
        self._used_bytes[action.node] -= self._bytes[action.model]
        return ModelUnloaded(
            **self._stamp(now_s), model=action.model, node=action.node, cause=action.cause
        )

    def _refused(self, action_id: str, kind: str, model: ModelId, at_s: float) -> ActionFailed:
        return ActionFailed(
            **self._stamp(at_s), action_id=action_id, kind=kind, subject=model, error="not now"
        )

    def _put(self, model: ModelId, node: NodeId) -> None:
        self._resident[node][model] = None
        self._used_bytes[node] += self._bytes[model]

    def _is_hot(self, model: ModelId) -> bool:
        return model in self._resident[self._home[model]] and model not in self._loading

    def _load_s(self, model: ModelId) -> float:
        return 1.0 + self._bytes[model] / (0.6 * GIB)

    def _lists(self) -> dict[NodeId, tuple[ModelId, ...]]:
        if not self.size.listed_on or self.size.listed_on >= self.size.nodes:
            return dict.fromkeys(self.nodes, self.models)
        found: dict[NodeId, list[ModelId]] = {node: [] for node in self.nodes}
        for number, model in enumerate(self.models):
            for step in range(self.size.listed_on):
                found[self.nodes[(number + step) % self.size.nodes]].append(model)
        return {node: tuple(models) for node, models in found.items()}

    def _stamp(self, at_s: float) -> _Stamp:
        return {"event_id": f"{SOURCE}-{next(self._ids)}", "at_s": at_s, "source": SOURCE}
