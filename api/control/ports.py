"""What the control API reaches the rest of the stack through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contracts.batches import BatchStore, FileStore
from contracts.errors import Invalid
from contracts.insights import InsightStore, NextRun
from contracts.messages import ToController
from contracts.ports import (
    ControlStore,
    DecisionJournal,
    EventLog,
    ForecastStore,
    JobQueue,
    JobResults,
    Mailbox,
    ProfileStore,
    SnapshotStore,
)
from contracts.predictors import PredictorRoster
from contracts.scaling import ScalingStore


def _no_webhooks(_url: str) -> None:
    raise Invalid("webhook: none is called from here")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPorts:
    """The ports of one control service. Those that are None are not set up here.

    ``workers`` says how many processes serve a queue now; as synchronous as the queue itself.
    """

    events: EventLog
    forecasts: ForecastStore
    decisions: DecisionJournal
    settings: ControlStore
    snapshots: SnapshotStore
    controller: Mailbox[ToController]
    jobs: JobQueue | None = None
    results: JobResults | None = None
    workers: Callable[[str], int] | None = None
    files: FileStore | None = None
    batches: BatchStore | None = None
    profiles: ProfileStore | None = None
    scaling: ScalingStore | None = None
    insights: InsightStore | None = None
    predictors: PredictorRoster | None = None
    chores: Callable[[float], Sequence[NextRun]] = lambda _now_s: ()
    """When maintenance is due, as of now."""
    check_webhook: Callable[[str], None] = _no_webhooks
