"""The queues of background jobs and what bounds each: the one table."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from contracts.config import JobQueueConfig
from contracts.events import PriorityClass

REALTIME_FALLBACK = "realtime-fallback"
BATCH = "batch"
BACKGROUND = "background"
MAINTENANCE = "maintenance"

QUEUES: Mapping[str, JobQueueConfig] = MappingProxyType(
    {
        queue.name: queue
        for queue in (
            # Realtime requests that could not be served at once: stale within minutes.
            JobQueueConfig(name=REALTIME_FALLBACK, capacity=100, run_limit_s=600),
            # One job per line, and the Batch API takes 50,000 lines in a file.
            JobQueueConfig(name=BATCH, capacity=100_000),
            JobQueueConfig(name=BACKGROUND, capacity=10_000),
            # Our own chores: a few a day each. A backtest of a full log takes tens of minutes.
            JobQueueConfig(name=MAINTENANCE, capacity=100, run_limit_s=2 * 3600),
        )
    }
)

CLASSES: Mapping[str, PriorityClass] = MappingProxyType(
    {
        REALTIME_FALLBACK: PriorityClass.REALTIME,
        BATCH: PriorityClass.BATCH,
        BACKGROUND: PriorityClass.BACKGROUND,
    }
)
"""The class that a queue's requests carry at the gateway; maintenance sends none."""
