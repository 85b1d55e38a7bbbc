"""Everything outside that the controller talks to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.ids import NodeId
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
