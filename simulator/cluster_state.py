"""What the closed loop keeps about nodes, models and requests while it plays."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum

from simulator.workloads import Arrival, WorkloadModel


class State(IntEnum):
    """Where a model is."""

    COLD = 0
    LOADING = 1
    HOT = 2


@dataclass(slots=True)
class SimNode:
    """One LocalAI's changing part. ``others_mb``: memory that another program holds."""

    capacity_mb: int
    used_mb: int = 0
    others_mb: int = 0
    loading: int = 0
    in_flight: int = 0
    busy_since_s: float = 0.0
    alive: bool = True


@dataclass(slots=True)
class SimModel:
    """One model's changing part.

    ``queue`` is a heap of (class, number) of requests that have no slot yet. ``node`` is where
    it is, or was last. ``epoch`` counts what broke it, so that ends of before are void.
    ``draining``: it takes nothing new, so that it can go when its last request has ended.
    """

    spec: WorkloadModel
    state: State = State.COLD
    node: int = 0
    in_flight: int = 0
    queue: list[tuple[int, int]] = field(default_factory=list)
    running: set[int] = field(default_factory=set)
    last_used_s: float = 0.0
    held_since_s: float = 0.0
    cooldown_until_s: float = 0.0
    epoch: int = 0
    draining: bool = False
    prefetched: bool = False
    used: bool = False

    @property
    def idle(self) -> bool:
        """Hot, and nothing runs or waits."""
        return (
            self.state is State.HOT and not self.in_flight and not self.queue and not self.draining
        )

    @property
    def drained(self) -> bool:
        """Takes nothing new, and serves nothing any more."""
        return self.draining and not self.in_flight


@dataclass(slots=True)
class Outcome:
    """What became of one request; times are None until they happen.

    ``node`` served it; ``failed``: its node went while it ran, so that it ended without an
    answer.
    """

    arrival: Arrival
    cold: bool
    started_s: float | None = None
    ended_s: float | None = None
    failed: bool = False
    node: int = 0

    @property
    def wait_s(self) -> float:
        """Start of service minus arrival. Raises AssertionError before the start."""
        assert self.started_s is not None
        return self.started_s - self.arrival.at_s


@dataclass(slots=True)
class Tally:
    """Counts over a run.

    ``lost``: models that went with their node; ``busy_s``: seconds in which a node served
    something, over all nodes.
    """

    loads: int = 0
    prefetches: int = 0
    prefetches_used: int = 0
    prefetches_wasted: int = 0
    unloads: int = 0
    failed_loads: int = 0
    lost: int = 0
    held_mb_s: float = 0.0
    busy_s: float = 0.0
