"""Everything outside that the controller talks to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from contracts.config import ModelProfile
from contracts.ids import ModelId, NodeId
from contracts.messages import ToController, ToGateways
from contracts.ports import (
    Clock,
    ControlStore,
    DecisionJournal,
    EventLog,
    ForecastStore,
    Lease,
    LoadLock,
    Mailbox,
    ModelServer,
    ProfileStore,
    SnapshotStore,
    WeightCache,
)
from contracts.variants import ModelFiles
from controller.sight import Sight

DeclaredProfile = Callable[[NodeId, ModelId], Awaitable[ModelProfile | None]]
"""Reads what a model's own file on a node declares for us; None: nothing."""


async def nothing_declared(node: NodeId, model: ModelId) -> ModelProfile | None:  # noqa: ARG001 - a port's shape
    """For nodes whose model files cannot be read."""
    return None


class NodeDoors(Protocol):
    """The ways to instances behind one name. Those of ``Ports`` by node come and go with them."""

    @property
    def found_at_start(self) -> Mapping[NodeId, str]:
        """Addresses as they were looked up when the process began."""
        ...

    @property
    def opened(self) -> Collection[NodeId]:
        """Those that are open now, be it since an earlier term."""
        ...

    async def look(self) -> tuple[str, ...] | None:
        """The addresses behind the name, sorted; None: it could not be looked up."""
        ...

    def note_look(self, took_s: float | None) -> None:
        """How long the last look took, in real seconds; None: it failed."""
        ...

    def jitter(self) -> float:
        """About 1: what the time to the next look is multiplied by."""
        ...

    def open(self, node: NodeId, address: str) -> None:
        """Make the ways to a node; empty: it is at the name itself."""
        ...

    def close(self, node: NodeId) -> None:
        """Let go of them; calls that still run are given up."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """One of each; ``servers`` has one per LocalAI instance."""

    clock: Clock
    events: EventLog
    to_controller: Mailbox[ToController]
    to_gateways: Mailbox[ToGateways]
    forecasts: ForecastStore
    journal: DecisionJournal
    controls: ControlStore
    snapshots: SnapshotStore
    lease: Lease
    servers: Mapping[NodeId, ModelServer]
    load_lock: LoadLock | None = None
    """Of gateways that load alone; None: none does."""
    declared: DeclaredProfile = nothing_declared
    model_files: Mapping[NodeId, ModelFiles] = field(default_factory=dict)
    """Where variants are made; on a node that is left out none is."""
    weights_found: Callable[[], Collection[str]] = tuple
    """Names of weights in the models folders, as far as they can be looked at."""
    profiles: ProfileStore | None = None
    weights: Mapping[NodeId, WeightCache] = field(default_factory=dict)
    """Models folders that are mounted here, by the node whose they are."""
    sights: Mapping[NodeId, Sight] = field(default_factory=dict)
    """Who sees the machines of nodes; of those that are left out LocalAI alone tells."""
    doors: NodeDoors | None = None
    """None: all nodes are configured, and none comes or goes."""
