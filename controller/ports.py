"""Everything outside that the controller talks to."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

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
    Mailbox,
    ModelServer,
    SnapshotStore,
)

DeclaredProfile = Callable[[NodeId, ModelId], Awaitable[ModelProfile | None]]
"""Reads what a model's own file on a node declares for us; None: nothing."""


async def nothing_declared(node: NodeId, model: ModelId) -> ModelProfile | None:  # noqa: ARG001 - a port's shape
    """For nodes whose model files cannot be read."""
    return None


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
    declared: DeclaredProfile = nothing_declared
