"""The closed loop on a virtual clock: arrivals, slots, loads and memory of one node.

What it models is fixed in ``docs/simulation.md``: loads take exactly ``load_s`` and do not
slow each other, a hot model serves ``parallel`` requests at once in order of arrival, and
memory is held from the start of a load until the unload. It decides nothing: a ``Driver``
is told what happened and orders loads and unloads, which the simulation checks.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Protocol

from contracts.errors import Invalid
from contracts.ids import ModelId
from simulator.workloads import Arrival, Workload, WorkloadModel

PARALLEL_LOADS = 2


class State(IntEnum):
    """Where a model is."""

    COLD = 0
    LOADING = 1
    HOT = 2


@dataclass(slots=True)
class SimModel:
    """One model's changing part. ``queue`` holds requests that have no slot yet."""

    spec: WorkloadModel
    state: State = State.COLD
    in_flight: int = 0
    queue: deque[int] = field(default_factory=deque)
    last_used_s: float = 0.0
    held_since_s: float = 0.0
    prefetched: bool = False
    used: bool = False

    @property
    def idle(self) -> bool:
        """Hot, and nothing runs or waits."""
        return self.state is State.HOT and not self.in_flight and not self.queue


@dataclass(slots=True)
class Outcome:
    """What became of one request; times are None until they happen."""

    arrival: Arrival
    cold: bool
    started_s: float | None = None

    @property
    def wait_s(self) -> float:
        """Start of service minus arrival. Raises AssertionError before the start."""
        assert self.started_s is not None
        return self.started_s - self.arrival.at_s


@dataclass(slots=True)
class Tally:
    """Counts over a run."""

    loads: int = 0
    prefetches: int = 0
    prefetches_used: int = 0
    prefetches_wasted: int = 0
    unloads: int = 0
    held_mb_s: float = 0.0


class Driver(Protocol):
    """The policy's side of the loop."""

    name: str

    def begin(self, simulation: Simulation) -> None:
        """Called once, before the first event."""
        ...

    def on_arrival(self, request: int, model: ModelId) -> None: ...

    def on_started(self, request: int, model: ModelId) -> None: ...

    def on_ended(self, request: int, model: ModelId) -> None: ...

    def on_loaded(self, model: ModelId) -> None: ...

    def on_timer(self, tag: str) -> None: ...


class Simulation:
    """One run of one driver over one workload.

    Parameters
    ----------
    capacity_mb : int
        Memory of the node.
    check_memory : bool
        False only for ``localai-lru``, which counts models and does not look at memory.

    Raises
    ------
    Invalid
        There is no request, or memory is looked at and a model is larger than all of it:
        its requests would wait for ever.
    """

    def __init__(
        self, workload: Workload, capacity_mb: int, driver: Driver, *, check_memory: bool = True
    ) -> None:
        if not workload.arrivals:
            raise Invalid(f"{workload.name}: no request to simulate")
        largest = max(workload.models.values(), key=lambda model: model.size_mb)
        if check_memory and largest.size_mb > capacity_mb:
            raise Invalid(
                f"capacity of {capacity_mb} MB does not hold {largest.model} ({largest.size_mb} MB)"
            )
        self.workload = workload
        self.capacity_mb = capacity_mb
        self.models = {name: SimModel(spec) for name, spec in workload.models.items()}
        self.outcomes: list[Outcome] = []
        self.tally = Tally()
        self.now_s = workload.arrivals[0].at_s
        """Time starts with the first request: a workload may begin anywhere in a day."""
        self.used_mb = 0
        self.loading = 0
        self._driver = driver
        self._check_memory = check_memory
        self._scheduled: list[tuple[float, int, str, str, int]] = []
        self._sequence = 0

    def run(self, played: Callable[[int], None] = lambda _: None) -> None:
        """Play all arrivals, then what they started, to the end.

        ``played`` is told how many arrivals have been played, after each.
        """
        self._driver.begin(self)
        for request, arrival in enumerate(self.workload.arrivals):
            self._play_until(arrival.at_s)
            self.now_s = arrival.at_s
            self._arrive(request, arrival)
            played(request + 1)
        self._play_until(float("inf"))
        for model in self.models.values():
            if model.state is not State.COLD:
                self.tally.held_mb_s += model.spec.size_mb * (self.now_s - model.held_since_s)

    def idle_models(self) -> Iterator[ModelId]:
        """Models that may be evicted."""
        return (name for name, model in self.models.items() if model.idle)

    def fits(self, model: ModelId) -> bool:
        """Whether its size is free."""
        return self.used_mb + self.models[model].spec.size_mb <= self.capacity_mb

    def start_load(self, name: ModelId, *, prefetch: bool) -> None:
        """Begin a load; it ends after exactly ``load_s``."""
        model = self.models[name]
        assert model.state is State.COLD, f"{name} is {model.state.name}"
        assert self.loading < PARALLEL_LOADS, "all load slots are taken"
        assert self.fits(name) or not self._check_memory, f"{name} does not fit"
        model.state, model.held_since_s = State.LOADING, self.now_s
        model.prefetched, model.used = prefetch, bool(model.queue)
        self.loading += 1
        self.used_mb += model.spec.size_mb
        self.tally.loads += 1
        self.tally.prefetches += prefetch
        if prefetch and model.used:
            self.tally.prefetches_used += 1
        self._schedule(self.now_s + model.spec.load_s, "loaded", name)

    def unload(self, name: ModelId) -> None:
        """Free an idle model's memory at once."""
        model = self.models[name]
        assert model.idle, f"{name} is not idle"
        model.state = State.COLD
        self.used_mb -= model.spec.size_mb
        self.tally.unloads += 1
        self.tally.held_mb_s += model.spec.size_mb * (self.now_s - model.held_since_s)
        if model.prefetched and not model.used:
            self.tally.prefetches_wasted += 1

    def wake_at(self, at_s: float, tag: str = "") -> None:
        """Have the driver's ``on_timer`` called; dropped once nothing else is left to happen."""
        self._schedule(at_s, "timer", tag)

    def _schedule(self, at_s: float, kind: str, subject: str, request: int = -1) -> None:
        self._sequence += 1
        heapq.heappush(self._scheduled, (at_s, self._sequence, kind, subject, request))

    def _play_until(self, until_s: float) -> None:
        """What was scheduled before ``until_s``: at the same instant arrivals go first."""
        last = until_s == float("inf")
        while self._scheduled and self._scheduled[0][0] < until_s:
            if last and self._only_timers_left():
                return
            at_s, _, kind, subject, request = heapq.heappop(self._scheduled)
            self.now_s = at_s
            self._happen(kind, subject, request)

    def _only_timers_left(self) -> bool:
        return all(kind == "timer" for _, _, kind, _, _ in self._scheduled) and not any(
            model.queue for model in self.models.values()
        )

    def _happen(self, kind: str, subject: str, request: int) -> None:
        if kind == "timer":
            self._driver.on_timer(subject)
            return
        name = ModelId(subject)
        model = self.models[name]
        model.last_used_s = self.now_s
        if kind == "loaded":
            model.state = State.HOT
            self.loading -= 1
            self._serve(name, model)
            self._driver.on_loaded(name)
        else:
            model.in_flight -= 1
            self._serve(name, model)
            self._driver.on_ended(request, name)

    def _arrive(self, request: int, arrival: Arrival) -> None:
        model = self.models[arrival.model]
        model.last_used_s = self.now_s
        self.outcomes.append(Outcome(arrival, cold=model.state is not State.HOT))
        model.queue.append(request)
        if model.state is not State.COLD and not model.used:
            model.used = True
            self.tally.prefetches_used += model.prefetched
        self._driver.on_arrival(request, arrival.model)
        if model.state is State.HOT:
            self._serve(arrival.model, model)

    def _serve(self, name: ModelId, model: SimModel) -> None:
        while model.queue and model.in_flight < model.spec.parallel:
            request = model.queue.popleft()
            model.in_flight += 1
            outcome = self.outcomes[request]
            outcome.started_s = self.now_s
            self._schedule(self.now_s + outcome.arrival.service_s, "ended", name, request)
            self._driver.on_started(request, name)
