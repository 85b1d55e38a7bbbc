"""Policies that are an eviction order: the baselines, each by the rule its name stands for."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from contracts.errors import Invalid
from contracts.ids import ModelId
from simulator.simulation import PARALLEL_LOADS, Simulation, State
from simulator.workloads import Workload

IDLE_TIMEOUT_S = 900.0
ORACLE_TICK_S = 1.0
ORACLE_HORIZON_S = 32.0


class RuleDriver:
    """Demand loads in order of arrival, victims in the order that a subclass names (`lru`)."""

    name = "lru"

    def __init__(self) -> None:
        self._waiting: deque[ModelId] = deque()

    def begin(self, simulation: Simulation) -> None:
        """Keep the simulation that orders go to."""
        self._sim = simulation

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

    def on_timer(self, tag: str) -> None:
        """Only policies that tick ask for timers."""

    def victims(self, for_model: ModelId) -> list[ModelId]:
        """Idle models, first to go first."""
        models = self._sim.models
        return sorted(self._sim.idle_models(), key=lambda m: (models[m].last_used_s, m))

    def fits(self, model: ModelId) -> bool:
        """Whether the load may start without another eviction."""
        return self._sim.fits(model)

    def evicted(self, model: ModelId) -> None:
        """A victim is about to go."""

    def _try_load(self, model: ModelId) -> bool:
        if self._sim.loading >= PARALLEL_LOADS:
            return False
        if not self.fits(model):
            for victim in self.victims(model):
                self.evicted(victim)
                self._sim.unload(victim)
                if self.fits(model):
                    break
        if not self.fits(model):
            return False
        self._sim.start_load(model, prefetch=False)
        return True

    def _retry(self) -> None:
        while self._waiting and self._try_load(self._waiting[0]):
            self._waiting.popleft()


class LocalAILru(RuleDriver):
    """LocalAI as shipped: a limit on the number of models, memory not looked at."""

    name = "localai-lru"

    def __init__(self, model_limit: int) -> None:
        super().__init__()
        self._limit = model_limit

    def fits(self, model: ModelId) -> bool:
        """Fewer than the limit are resident or loading."""
        held = sum(m.state is not State.COLD for m in self._sim.models.values())
        return held < self._limit


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

    def on_timer(self, tag: str) -> None:
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

    def victims(self, for_model: ModelId) -> list[ModelId]:
        """Least value first."""
        return sorted(self._sim.idle_models(), key=lambda m: (self._value[m], m))

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

    def victims(self, for_model: ModelId) -> list[ModelId]:
        """Farthest next arrival first."""
        return sorted(self._sim.idle_models(), key=lambda m: (-self.next_arrival_s(m), m))


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

    def on_timer(self, tag: str) -> None:
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
            if self._sim.loading or self._waiting:
                return
            load_s = models[name].spec.load_s
            if next_s - self._sim.now_s <= load_s + ORACLE_HORIZON_S:
                later = next_s + load_s
                self._try_prefetch(
                    name, [v for v in self.victims(name) if self.next_arrival_s(v) > later]
                )

    def _try_prefetch(self, name: ModelId, allowed: Iterable[ModelId]) -> None:
        sim = self._sim
        room_mb = sim.capacity_mb - sim.used_mb
        chosen = []
        for victim in allowed:
            if room_mb >= sim.models[name].spec.size_mb:
                break
            room_mb += sim.models[victim].spec.size_mb
            chosen.append(victim)
        if room_mb >= sim.models[name].spec.size_mb:
            for victim in chosen:
                self.evicted(victim)
                sim.unload(victim)
            sim.start_load(name, prefetch=True)


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
