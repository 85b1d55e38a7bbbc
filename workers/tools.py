"""What handlers work with: ports alone, opened in the process that runs the job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from contracts.batches import BatchStore, FileStore, ResultLog
from contracts.config import PredictorConfig
from contracts.insights import ChampionStore, InsightStore
from contracts.ports import (
    Clock,
    EventLog,
    ForecastStore,
    InferenceGateway,
    JobQueue,
    JobResults,
    Notifier,
    ProfileStore,
    SnapshotStore,
    Trimmable,
)
from workers.admission import AdmissionConfig, ChoreAdmission

T = TypeVar("T")


class Aside(Protocol):
    """Runs a function elsewhere, such as ``asyncio.to_thread``."""

    async def __call__(self, function: Callable[..., T], /, *args: Any) -> T: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionConfig:
    """How much of the past is kept.

    Attributes
    ----------
    max_age_s : float
        Log entries older than this go, in real seconds, since their age is the store's.
    max_entries : mapping
        Entries that each log keeps at most, by the log's name in ``Tools.logs``.
    forecast_age_s : float
        A forecast goes when its model was last seen this long ago.
    batch_age_s : float
        A batch's record goes this long after its end; its files say themselves when they go.
    profile_age_s : float
        What was measured of a model goes when nothing was added for so long.
    """

    max_age_s: float = 14 * 24 * 3600.0
    max_entries: Mapping[str, int] = field(
        default_factory=lambda: {"events": 500_000, "decisions": 50_000}
    )
    forecast_age_s: float = 30 * 24 * 3600.0
    batch_age_s: float = 30 * 24 * 3600.0
    profile_age_s: float = 60 * 24 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Everything outside that jobs use.

    ``logs`` are those that retention trims, by name. ``aside`` runs what would hold up
    everything else, such as reading a large file.
    """

    clock: Clock
    results: JobResults
    jobs: JobQueue
    gateway: InferenceGateway
    snapshots: SnapshotStore
    forecasts: ForecastStore
    logs: Mapping[str, Trimmable]
    batches: BatchStore | None = None
    files: FileStore | None = None
    line_results: ResultLog | None = None
    notifier: Notifier | None = None
    webhook_secret: str | None = field(default=None, repr=False)
    events: EventLog | None = None
    insights: InsightStore | None = None
    champions: ChampionStore | None = None
    profiles: ProfileStore | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    """Libraries that a snapshot of the challenger rests on."""
    predictor: PredictorConfig = field(default_factory=PredictorConfig)
    aside: Aside = asyncio.to_thread
    chores: ChoreAdmission = field(default_factory=ChoreAdmission)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    retention: RetentionConfig = field(default_factory=RetentionConfig)


@dataclass(frozen=True, slots=True, kw_only=True)
class JobContext:
    """The job that runs. ``waited_s``: since it was enqueued, on the clock of ``Tools``."""

    job_id: str
    queue: str
    waited_s: float
