"""What happens in the simulation, as the events that a deployment would write about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict

from contracts.events import (
    ActionFailed,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    NodeLost,
    NodeObserved,
    Origin,
    PriorityClass,
    RequestCompleted,
    RequestDispatched,
    RequestFailed,
    RequestReceived,
    UnloadCause,
)
from contracts.ids import ModelId, NodeId, RequestId
from simulator.cluster_state import State
from simulator.simulation import Simulation
from simulator.workloads import MIB

RANKS = (PriorityClass.REALTIME, PriorityClass.BATCH, PriorityClass.BACKGROUND)
"""The class of each ``Arrival.rank``."""

SOURCE = "sim"


class _Stamp(TypedDict):
    event_id: str
    at_s: float
    source: str


class Teller:
    """Words one simulation's happenings. ``count``: events so far; an event's id is its number."""

    def __init__(self, simulation: Simulation, nodes: Sequence[NodeId]) -> None:
        self._sim = simulation
        self._nodes = nodes
        self._began_s = simulation.now_s
        self.count = 0

    # By the gateway, whose clock may be off

    def received(self, request: int, model: ModelId) -> RequestReceived:
        """A request came."""
        return RequestReceived(
            **self._stamp(gateway=True),
            request_id=RequestId(str(request)),
            model=model,
            operation="chat",
            priority=RANKS[self._sim.outcomes[request].arrival.rank],
            client="",
            stream=False,
        )

    def dispatched(self, request: int, model: ModelId) -> RequestDispatched:
        """It was sent to LocalAI."""
        outcome = self._sim.outcomes[request]
        return RequestDispatched(
            **self._stamp(gateway=True),
            request_id=RequestId(str(request)),
            model=model,
            node=self._node_of(model),
            queue_wait_s=outcome.wait_s,
            cold=outcome.cold,
        )

    def completed(self, request: int, model: ModelId) -> RequestCompleted:
        """Its answer ended."""
        outcome = self._sim.outcomes[request]
        return RequestCompleted(
            **self._stamp(gateway=True),
            request_id=RequestId(str(request)),
            model=model,
            status=200,
            duration_s=self._sim.now_s - outcome.arrival.at_s,
            service_s=outcome.arrival.service_s,
            input_tokens=None,
            output_tokens=None,
        )

    def failed(self, request: int) -> RequestFailed:
        """Its node went while it ran."""
        arrival = self._sim.outcomes[request].arrival
        return RequestFailed(
            **self._stamp(gateway=True),
            request_id=RequestId(str(request)),
            model=arrival.model,
            status=502,
            error="connection broken",
            origin=Origin.UPSTREAM,
            duration_s=self._sim.now_s - arrival.at_s,
        )

    # By the controller

    def loaded(self, model: ModelId) -> ModelLoaded:
        """LocalAI said that it is loaded."""
        spec = self._sim.models[model].spec
        return ModelLoaded(
            **self._stamp(),
            model=model,
            node=self._node_of(model),
            cause=LoadCause.DEMAND,
            load_s=spec.load_s,
            footprint_bytes=spec.footprint_bytes,
        )

    def load_failed(self, model: ModelId, retry_after_s: float) -> ModelLoadFailed:
        """LocalAI said that it could not load it."""
        return ModelLoadFailed(
            **self._stamp(),
            model=model,
            node=self._node_of(model),
            cause=LoadCause.DEMAND,
            error="load failed",
            retry_after_s=retry_after_s,
        )

    def unloaded(self, model: ModelId, cause: UnloadCause) -> ModelUnloaded:
        """It left memory."""
        return ModelUnloaded(**self._stamp(), model=model, node=self._node_of(model), cause=cause)

    def given_up(self, action_id: str, kind: str, model: ModelId) -> ActionFailed:
        """An order that could not be carried out."""
        return ActionFailed(
            **self._stamp(), action_id=action_id, kind=kind, subject=model, error="in use"
        )

    def observed(self, node: int) -> NodeObserved:
        """What a poll of the node finds."""
        state = self._sim.nodes[node]
        hot = [
            name
            for name, model in self._sim.models.items()
            if model.state is State.HOT and model.node == node
        ]
        return NodeObserved(
            **self._stamp(),
            node=self._nodes[node],
            resident=tuple(sorted(hot)),
            busy=(),
            memory_total_bytes=state.capacity_mb * MIB,
            memory_used_bytes=(state.used_mb + state.others_mb) * MIB,
            model_limit=None,
        )

    def lost(self, node: int) -> NodeLost:
        """A poll of the node found nobody."""
        return NodeLost(**self._stamp(), node=self._nodes[node], error="connection refused")

    def _node_of(self, model: ModelId) -> NodeId:
        return self._nodes[self._sim.models[model].node]

    def _stamp(self, *, gateway: bool = False) -> _Stamp:
        self.count += 1
        at_s = self._sim.now_s
        if gateway and self._sim.faults.clock_steps:
            at_s += self._sim.faults.clock_offset_s(at_s - self._began_s)
        return _Stamp(event_id=f"s{self.count}", at_s=at_s, source=SOURCE)
