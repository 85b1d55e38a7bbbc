"""Every port of ``contracts/ports.py`` in memory, for simulations and tests.

The contract suite (``tests/contract``) holds these and the real adapters to the same
behaviour. ``fault`` set on any of them makes every call raise it, as an outage would.
"""

from __future__ import annotations

from simulator.clock import VirtualClock
from simulator.memory_jobs import MemoryJobQueue, MemoryJobResults, MemoryTrimmable
from simulator.memory_load_lock import MemoryLoadLock
from simulator.memory_model_server import MemoryModelServer, ServerCall
from simulator.memory_stores import (
    MemoryControlStore,
    MemoryForecastStore,
    MemoryLease,
    MemoryProbe,
    MemorySnapshotStore,
)
from simulator.memory_streams import MemoryDecisionJournal, MemoryEventLog, MemoryMailbox
from simulator.memory_weights import MemoryWeightCache

__all__ = [
    "MemoryControlStore",
    "MemoryDecisionJournal",
    "MemoryEventLog",
    "MemoryForecastStore",
    "MemoryJobQueue",
    "MemoryJobResults",
    "MemoryLease",
    "MemoryLoadLock",
    "MemoryMailbox",
    "MemoryModelServer",
    "MemoryProbe",
    "MemorySnapshotStore",
    "MemoryTrimmable",
    "MemoryWeightCache",
    "ServerCall",
    "VirtualClock",
]
