"""The closed loop on a virtual clock: arrivals, slots, loads and memory of one or more nodes.

What it models is fixed in ``docs/simulation.md``: loads take exactly ``load_s`` and do not
slow each other, a hot model serves ``parallel`` requests at once in order of class and
arrival, and memory is held from the start of a load until the unload. It decides nothing: a
``Driver`` is told what happened and orders loads and unloads, which the simulation checks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from typing import Protocol

from contracts.errors import Invalid
from contracts.ids import ModelId
from simulator.cluster_state import Outcome, SimModel, SimNode, State, Tally
from simulator.faults import NO_FAULTS, Faults, LoadFault
from simulator.workloads import Arrival, Workload

PARALLEL_LOADS = 2
"""Loads at once on each node."""


MAX_STANDSTILL_S = 86_400.0
"""Past the last arrival: so long without a load or a request that ends, and none ever will."""


class Stuck(AssertionError):
    """Requests wait, and the driver does nothing about it."""


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

    def on_load_failed(self, model: ModelId, *, lied: bool) -> None:
        """A load ended without a hot model; ``lied``: whoever ordered it was told otherwise."""
        ...

    def on_node(self, node: int, lost: tuple[ModelId, ...], broken: tuple[int, ...]) -> None:
        """A node went, came back or has other room.

        ``lost`` are models that went with it, ``broken`` the requests that ran on them.
        """
        ...


class Simulation:
    """One run of one driver over one workload.

    Parameters
    ----------
    capacity_mb : int
        Memory of each node.
    check_memory : bool
        False only for ``localai-lru``, which counts models and does not look at memory.
    nodes : int
        How many there are. A model is on at most one of them.
    faults : Faults
        What goes wrong, and when.

    Raises
    ------
    Invalid
        There is no request, or memory is looked at and a model is larger than all of it:
        its requests would wait for ever.
    """

    def __init__(
        self,
        workload: Workload,
        capacity_mb: int,
        driver: Driver,
        *,
        check_memory: bool = True,
        nodes: int = 1,
        faults: Faults = NO_FAULTS,
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
        self.nodes = [SimNode(capacity_mb) for _ in range(nodes)]
        self.models = {name: SimModel(spec) for name, spec in workload.models.items()}
        self.outcomes: list[Outcome] = []
        self.tally = Tally()
        self.now_s = self._progress_s = workload.arrivals[0].at_s
        """Time starts with the first request: a workload may begin anywhere in a day."""
        self.faults = faults
        self.check_memory = check_memory
        self._driver = driver
        self._scheduled: list[tuple[float, int, str, str, int]] = []
        self._sequence = 0
        self._timers = 0
        self._queued = 0

    def run(self, played: Callable[[int], None] = lambda _: None) -> None:
        """Play all arrivals, then what they started, to the end.

        ``played`` is told how many arrivals have been played, after each.
        """
        for at_s, change in self.faults.node_changes:
            self._schedule(self.now_s + at_s, "node", "", change)
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

    # What a driver may ask

    @property
    def used_mb(self) -> int:
        """Memory that models hold, over all nodes."""
        return sum(node.used_mb for node in self.nodes)

    @property
    def loading(self) -> int:
        """Loads that run, over all nodes."""
        return sum(node.loading for node in self.nodes)

    def idle_models(self, node: int = 0) -> Iterator[ModelId]:
        """Models of a node that may be evicted."""
        return (name for name, model in self.models.items() if model.idle and model.node == node)

    def free_mb(self, node: int = 0) -> int:
        """Memory that is left on a node; below 0 where another program took what models hold."""
        one = self.nodes[node]
        return one.capacity_mb - one.others_mb - one.used_mb

    def fits(self, model: ModelId, node: int = 0) -> bool:
        """Whether its size is free."""
        return self.models[model].spec.size_mb <= self.free_mb(node)

    # What a driver may order

    def start_load(self, name: ModelId, *, prefetch: bool, node: int = 0) -> None:
        """Begin a load; it ends after exactly ``load_s``."""
        model, where = self.models[name], self.nodes[node]
        assert where.alive, f"node {node} is away"
        assert model.state is State.COLD, f"{name} is {model.state.name}"
        assert where.loading < PARALLEL_LOADS, "all load slots are taken"
        assert self.fits(name, node) or not self.check_memory, f"{name} does not fit"
        model.state, model.held_since_s, model.node = State.LOADING, self.now_s, node
        model.prefetched, model.used = prefetch, bool(model.queue)
        where.loading += 1
        where.used_mb += model.spec.size_mb
        self.tally.loads += 1
        self.tally.prefetches += prefetch
        if prefetch and model.used:
            self.tally.prefetches_used += 1
        fault = self.faults.load_fault(self.tally.loads)
        took = 1.0 if fault is not LoadFault.FAILS else self.faults.failed_after(self.tally.loads)
        self._schedule(self.now_s + model.spec.load_s * took, fault.value, name, model.epoch)

    def unload(self, name: ModelId) -> None:
        """Free an idle or drained model's memory at once."""
        model = self.models[name]
        assert model.idle or model.drained, f"{name} is not idle"
        self._drop(model)
        self.tally.unloads += 1

    def drain(self, name: ModelId, *, on: bool = True) -> None:
        """A hot model takes no new request from here on; or, drained in vain, it does again."""
        model = self.models[name]
        assert model.state is State.HOT, f"{name} is {model.state.name}"
        model.draining = on
        self._serve(name, model)

    def wake_at(self, at_s: float, tag: str = "") -> None:
        """Have the driver's ``on_timer`` called; dropped once nothing else is left to happen."""
        self._timers += 1
        self._schedule(at_s, "timer", tag)

    # Inside

    def _schedule(self, at_s: float, kind: str, subject: str, number: int = -1) -> None:
        self._sequence += 1
        heapq.heappush(self._scheduled, (at_s, self._sequence, kind, subject, number))

    def _play_until(self, until_s: float) -> None:
        """What was scheduled before ``until_s``: at the same instant arrivals go first."""
        last = until_s == float("inf")
        scheduled = self._scheduled
        while scheduled and scheduled[0][0] < until_s:
            if last and not self._queued and len(scheduled) == self._timers:
                return
            at_s, _, kind, subject, number = heapq.heappop(scheduled)
            if last and at_s - self._progress_s > MAX_STANDSTILL_S:
                raise Stuck(f"{self._queued} requests wait and nothing has happened for a day")
            self.now_s = at_s
            self._happen(kind, subject, number)

    def _happen(self, kind: str, subject: str, number: int) -> None:
        if kind == "timer":
            self._timers -= 1
            self._driver.on_timer(subject)
        elif kind == "node":
            self._change_node(number)
        elif kind == "ended":
            self._end_request(ModelId(subject), number)
        else:
            self._end_load(ModelId(subject), LoadFault(kind), number)

    def _end_load(self, name: ModelId, fault: LoadFault, epoch: int) -> None:
        model = self.models[name]
        if epoch != model.epoch:
            return  # its node went meanwhile
        self.nodes[model.node].loading -= 1
        if fault is LoadFault.NONE:
            model.state, model.last_used_s = State.HOT, self.now_s
            self._progress_s = self.now_s
            self._serve(name, model)
            self._driver.on_loaded(name)
            return
        self.tally.failed_loads += 1
        if fault is LoadFault.FAILS:
            model.cooldown_until_s = self.now_s + self.faults.cooldown_s
        self._drop(model)
        self._driver.on_load_failed(name, lied=fault is LoadFault.LIES)

    def _end_request(self, name: ModelId, request: int) -> None:
        model = self.models[name]
        if request not in model.running:
            return  # broken off before
        self._leave_slot(model, request)
        model.last_used_s = self._progress_s = self.now_s
        self.outcomes[request].ended_s = self.now_s
        self._serve(name, model)
        self._driver.on_ended(request, name)

    def _leave_slot(self, model: SimModel, request: int) -> None:
        model.running.remove(request)
        model.in_flight -= 1
        node = self.nodes[model.node]
        node.in_flight -= 1
        if not node.in_flight:
            self.tally.busy_s += self.now_s - node.busy_since_s

    def _change_node(self, number: int) -> None:
        """Carry out one of the faults' changes of a node."""
        change = self.faults.changes[number]
        node = self.nodes[change.node]
        node.others_mb = change.others_mb
        lost: tuple[ModelId, ...] = ()
        broken: list[int] = []
        if node.alive and not change.alive:
            lost = tuple(
                name
                for name, model in self.models.items()
                if model.state is not State.COLD and model.node == change.node
            )
            for name in lost:
                broken += self._break(self.models[name])
            node.loading = 0
        node.alive = change.alive
        self._driver.on_node(change.node, lost, tuple(broken))

    def _break(self, model: SimModel) -> list[int]:
        """Its process is gone: what ran ended without an answer, what waits goes on waiting."""
        model.epoch += 1
        broken = sorted(model.running)
        for request in broken:
            self._leave_slot(model, request)
            self.outcomes[request].failed = True
            self.outcomes[request].ended_s = self.now_s
        self._drop(model)
        self.tally.lost += 1
        return broken

    def _drop(self, model: SimModel) -> None:
        model.state, model.draining = State.COLD, False
        self.nodes[model.node].used_mb -= model.spec.size_mb
        self.tally.held_mb_s += model.spec.size_mb * (self.now_s - model.held_since_s)
        if model.prefetched and not model.used:
            self.tally.prefetches_wasted += 1

    def _arrive(self, request: int, arrival: Arrival) -> None:
        model = self.models[arrival.model]
        model.last_used_s = self.now_s
        cold = model.state is not State.HOT or model.draining
        self.outcomes.append(Outcome(arrival, cold=cold))
        heapq.heappush(model.queue, (arrival.rank, request))
        self._queued += 1
        if model.state is not State.COLD and not model.draining and not model.used:
            model.used = True
            self.tally.prefetches_used += model.prefetched
        self._driver.on_arrival(request, arrival.model)
        if model.state is State.HOT:
            self._serve(arrival.model, model)

    def _serve(self, name: ModelId, model: SimModel) -> None:
        if model.draining:
            return
        while model.queue and model.in_flight < model.spec.parallel:
            _, request = heapq.heappop(model.queue)
            self._queued -= 1
            model.in_flight += 1
            model.running.add(request)
            node = self.nodes[model.node]
            if not node.in_flight:
                node.busy_since_s = self.now_s
            node.in_flight += 1
            outcome = self.outcomes[request]
            outcome.started_s, outcome.node = self.now_s, model.node
            self._schedule(self.now_s + outcome.arrival.service_s, "ended", name, request)
            self._driver.on_started(request, name)
