"""Policies that are an eviction order: the baselines, each by the rule its name stands for."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable

from contracts.errors import Invalid
from contracts.ids import ModelId
from simulator.cluster_state import State
from simulator.simulation import PARALLEL_LOADS, Simulation
from simulator.workloads import Workload

IDLE_TIMEOUT_S = 900.0
ORACLE_TICK_S = 1.0
ORACLE_HORIZON_S = 32.0
_RETRY = "retry"


class RuleDriver:
    """Demand loads in order of arrival, victims in the order that a subclass names (`lru`).

    A load goes to the node with the most room that has a free load slot: the first on which
    it fits; else the first on which evicting makes it fit.
    """

    name = "lru"

    def __init__(self) -> None:
        self._waiting: list[ModelId] = []

    def begin(self, simulation: Simulation) -> None:
        """Keep the simulation that orders go to."""
        self._sim = simulation
        self._only_node = (0,) if len(simulation.nodes) == 1 else ()

    def on_arrival(self, request: int, model: ModelId) -> None:
        """A cold model's first request starts its load or joins the waiting loads."""
        if self._sim.models[model].state is not State.COLD or model in self._waiting:
            return
        if not self._try_load(model):
            self._waiting.append(model)

    def on_started(self, request: int, model: ModelId) -> None:
        """Nothing to do."""

    def on_ended(self, request: int, model: ModelId) -> None:
        """A model that turned idle may be what a waiting load needs."""
        if self._sim.models[model].idle:
            self._retry()

    def on_loaded(self, model: ModelId) -> None:
        """A load slot is free."""
        self._retry()

    def on_load_failed(self, model: ModelId, *, lied: bool) -> None:
        """Tried again when the model has cooled down; others go on at once."""
        if self._sim.models[model].queue and model not in self._waiting:
            self._waiting.append(model)
        self._sim.wake_at(self._sim.models[model].cooldown_until_s, _RETRY)
        self._retry()

    def on_node(self, node: int, lost: tuple[ModelId, ...], broken: tuple[int, ...]) -> None:
        """What is waited for has to be loaded anew; there may be other room now."""
        for model in lost:
            if self._sim.models[model].queue and model not in self._waiting:
                self._waiting.append(model)
        self._retry()

    def on_timer(self, tag: str) -> None:
        """A cool-down has ended, or what the policy itself waits for."""
        if tag == _RETRY:
            self._retry()
        else:
            self.on_tick(tag)

    def on_tick(self, tag: str) -> None:
        """Only policies that tick ask for timers."""

    def victims(self, node: int) -> list[ModelId]:
        """Idle models of a node, first to go first."""
        models = self._sim.models
        return sorted(self._sim.idle_models(node), key=lambda m: (models[m].last_used_s, m))

    def fits(self, model: ModelId, node: int) -> bool:
        """Whether the load may start without another eviction."""
        return self._sim.fits(model, node)

    def room(self, node: int) -> int:
        """What is left on a node, in the unit that the policy counts in."""
        return self._sim.free_mb(node)

    def could_fit(self, model: ModelId, node: int) -> bool:
        """Whether it would fit with every idle model gone."""
        idle_mb = sum(self._sim.models[m].spec.size_mb for m in self._sim.idle_models(node))
        return self._sim.models[model].spec.size_mb <= self._sim.free_mb(node) + idle_mb

    def evicted(self, model: ModelId) -> None:
        """A victim is about to go."""

    def _try_load(self, model: ModelId) -> bool:
        if self._sim.now_s < self._sim.models[model].cooldown_until_s:
            return False
        node = self._node_for(model)
        if node is None:
            return False
        if not self.fits(model, node):
            for victim in self.victims(node):
                self.evicted(victim)
                self._sim.unload(victim)
                if self.fits(model, node):
                    break
        if not self.fits(model, node):
            return False
        self._sim.start_load(model, prefetch=False, node=node)
        return True

    def _node_for(self, model: ModelId) -> int | None:
        nodes = self._sim.nodes
        free = [
            node
            for node in self._only_node or range(len(nodes))
            if nodes[node].alive and nodes[node].loading < PARALLEL_LOADS
        ]
        if len(free) < 2:
            return free[0] if free else None
        free.sort(key=lambda node: (-self.room(node), node))
        for suits in (self.fits, self.could_fit):
            for node in free:
                if suits(model, node):
                    return node
        return free[0]

    def _retry(self) -> None:
        """In order of arrival up to the first that cannot start; who cools down holds up nobody."""
        waiting, place = self._waiting, 0
        while place < len(waiting):
            if self._sim.now_s < self._sim.models[waiting[place]].cooldown_until_s:
                place += 1
            elif self._try_load(waiting[place]):
                del waiting[place]
            else:
                return


class LocalAILru(RuleDriver):
    """LocalAI as shipped: a limit on the number of models, memory not looked at."""

    name = "localai-lru"

    def __init__(self, model_limit: int) -> None:
        super().__init__()
        self._limit = model_limit

    def fits(self, model: ModelId, node: int) -> bool:
        """Fewer than the limit are resident or loading."""
        return self.room(node) > 0

    def room(self, node: int) -> int:
        """How many more models may be resident."""
        models = self._sim.models.values()
        return self._limit - sum(m.state is not State.COLD and m.node == node for m in models)

    def could_fit(self, model: ModelId, node: int) -> bool:
        """One that is idle makes room for any."""
        return any(True for _ in self._sim.idle_models(node))


class IdleTimeout(RuleDriver):
    """``lru``, and a model goes 900 s after its last use."""

    name = "idle-timeout"

    def on_ended(self, request: int, model: ModelId) -> None:
        """Start the model's idle time."""
        super().on_ended(request, model)
        self._watch(model)

    def on_loaded(self, model: ModelId) -> None:
        """Start the model's idle time."""
        super().on_loaded(model)
        self._watch(model)

    def on_tick(self, tag: str) -> None:
        """Unload the model if it was not used since."""
        model = self._sim.models[ModelId(tag)]
        if model.idle and self._sim.now_s >= model.last_used_s + IDLE_TIMEOUT_S:
            self._sim.unload(ModelId(tag))
            self._retry()

    def _watch(self, model: ModelId) -> None:
        if self._sim.models[model].idle:
            self._sim.wake_at(self._sim.models[model].last_used_s + IDLE_TIMEOUT_S, model)


class Gdsf(RuleDriver):
    """Greedy-Dual-Size-Frequency: H = L + count x load_s / size (Cherkasova 1998)."""

    name = "gdsf"

    def __init__(self) -> None:
        super().__init__()
        self._inflation = 0.0
        self._count: dict[ModelId, int] = defaultdict(int)
        self._value: dict[ModelId, float] = defaultdict(float)

    def on_arrival(self, request: int, model: ModelId) -> None:
        """Raise the model's value."""
        spec = self._sim.models[model].spec
        self._count[model] += 1
        self._value[model] = self._inflation + self._count[model] * spec.load_s / spec.size_mb
        super().on_arrival(request, model)

    def victims(self, node: int) -> list[ModelId]:
        """Least value first."""
        return sorted(self._sim.idle_models(node), key=lambda m: (self._value[m], m))

    def evicted(self, model: ModelId) -> None:
        """Age all others by the victim's value."""
        self._inflation = self._value[model]


class Belady(RuleDriver):
    """Clairvoyant eviction: the next arrival farthest away goes first."""

    name = "belady"

    def begin(self, simulation: Simulation) -> None:
        """Read the future."""
        super().begin(simulation)
        self._arrivals: dict[ModelId, list[float]] = defaultdict(list)
        for arrival in simulation.workload.arrivals:
            self._arrivals[arrival.model].append(arrival.at_s)

    def next_arrival_s(self, model: ModelId) -> float:
        """The model's first arrival after now; infinity without one."""
        times = self._arrivals[model]
        index = bisect_right(times, self._sim.now_s)
        return times[index] if index < len(times) else float("inf")

    def victims(self, node: int) -> list[ModelId]:
        """Farthest next arrival first."""
        return sorted(self._sim.idle_models(node), key=lambda m: (-self.next_arrival_s(m), m))


class Oracle(Belady):
    """``belady``, and loads ahead of what it knows will come."""

    name = "oracle"

    def begin(self, simulation: Simulation) -> None:
        """Start ticking, counted from the first request."""
        super().begin(simulation)
        self._quiet_until_s = float("-inf")
        simulation.wake_at(simulation.now_s + ORACLE_TICK_S)

    def on_arrival(self, request: int, model: ModelId) -> None:
        """What is due may have changed."""
        self._quiet_until_s = float("-inf")
        super().on_arrival(request, model)

    def evicted(self, model: ModelId) -> None:
        """One more model is cold."""
        self._quiet_until_s = float("-inf")

    def on_tick(self, tag: str) -> None:
        """Each second: waiting loads first, then prefetches."""
        self._retry()
        if self._sim.now_s >= self._quiet_until_s:
            self._prefetch()
        self._sim.wake_at(self._sim.now_s + ORACLE_TICK_S)

    def _prefetch(self) -> None:
        models = self._sim.models
        due = sorted(
            (self.next_arrival_s(name), name)
            for name, model in models.items()
            if model.state is State.COLD
        )
        # Until then no model can come due; arrivals and evictions say when that changes.
        self._quiet_until_s = min(
            (next_s - models[name].spec.load_s - ORACLE_HORIZON_S - 1e-6 for next_s, name in due),
            default=float("inf"),
        )
        for next_s, name in due:
            if self._waiting:
                return
            load_s = models[name].spec.load_s
            if next_s - self._sim.now_s <= load_s + ORACLE_HORIZON_S:
                later = next_s + load_s
                for node, state in enumerate(self._sim.nodes):
                    if state.alive and not state.loading and self._try_prefetch(name, node, later):
                        break

    def _try_prefetch(self, name: ModelId, node: int, later_s: float) -> bool:
        """Evicting only what is asked for after ``later_s``."""
        sim = self._sim
        size_mb, room_mb = sim.models[name].spec.size_mb, sim.free_mb(node)
        if sim.now_s < sim.models[name].cooldown_until_s:
            return False
        chosen = []
        if room_mb < size_mb:
            for victim in self.victims(node):
                if room_mb >= size_mb or self.next_arrival_s(victim) <= later_s:
                    break
                room_mb += sim.models[victim].spec.size_mb
                chosen.append(victim)
        if room_mb < size_mb:
            return False
        for victim in chosen:
            self.evicted(victim)
            sim.unload(victim)
        sim.start_load(name, prefetch=True, node=node)
        return True


def safe_model_limit(workload: Workload, capacity_mb: int) -> int:
    """The most models that always fit together: so many of the largest fit.

    Raises
    ------
    Invalid
        Not even the largest model fits.
    """
    used_mb = count = 0
    for size_mb in sorted((m.size_mb for m in workload.models.values()), reverse=True):
        used_mb += size_mb
        if used_mb > capacity_mb:
            break
        count += 1
    if not count:
        raise Invalid(f"capacity of {capacity_mb} MB does not hold the largest model")
    return count


RULES: dict[str, Callable[[Workload, int], RuleDriver]] = {
    "localai-lru": lambda workload, mb: LocalAILru(safe_model_limit(workload, mb)),
    "lru": lambda workload, mb: RuleDriver(),
    "idle-timeout": lambda workload, mb: IdleTimeout(),
    "gdsf": lambda workload, mb: Gdsf(),
    "belady": lambda workload, mb: Belady(),
    "oracle": lambda workload, mb: Oracle(),
}
