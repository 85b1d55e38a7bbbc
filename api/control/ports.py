"""What the control API reaches the rest of the stack through."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.messages import ToController
from contracts.ports import (
    ControlStore,
    DecisionJournal,
    EventLog,
    ForecastStore,
    JobQueue,
    Mailbox,
    SnapshotStore,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPorts:
    """The ports of one control service. ``jobs`` is None where no job queue is set up."""

    events: EventLog
    forecasts: ForecastStore
    decisions: DecisionJournal
    settings: ControlStore
    snapshots: SnapshotStore
    controller: Mailbox[ToController]
    jobs: JobQueue | None = None
