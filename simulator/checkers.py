"""What must hold in every run, whatever the policy, the workload and the faults.

``Watched`` stands between the simulation and a driver and looks at the truth after each thing
that happened; ``check_plan`` looks at what the product's planner decided, beside the world that
it believed in; ``check_end`` looks at what became of everybody. The simulation itself refuses
orders that cannot be (an unload of a busy model, a load beyond the budget) at once.
"""

from __future__ import annotations

from collections import Counter

from contracts.ids import ModelId
from contracts.plan import LoadModel, PlanResult, UnloadModel
from contracts.reasons import Reason
from contracts.world import Residency, WorldSnapshot
from controller.fold import commit
from simulator.cluster_state import SimModel, State
from simulator.simulation import PARALLEL_LOADS, Driver, Simulation

COUNTS_MODELS = "localai-lru"
"""The one rule that bounds the number of models and does not look at memory."""

STARVATION_S = 120.0
"""The oldest request that waits for a load gets it at the latest so long after it came,
once there is a load slot and idle models hold no more than its room."""

_GOING = frozenset({Residency.DRAINING, Residency.UNLOADING})


class Violation(AssertionError):
    """Something that must hold did not; says what, and when."""


class Watched:
    """Passes everything on to a driver, counts starts and ends, and checks the accounts.

    Parameters
    ----------
    every : int
        The accounts are gone through after each so many happenings; 1 is thorough and slow.
    """

    def __init__(self, driver: Driver, *, every: int = 1) -> None:
        self.name = driver.name
        self.started: Counter[int] = Counter()
        self.ended: Counter[int] = Counter()
        self._driver = driver
        self._every = every
        self._happenings = 0
        self._over_since_s: dict[int, float] = {}

    def begin(self, simulation: Simulation) -> None:
        """Called once, before the first event."""
        self._sim = simulation
        self._driver.begin(simulation)

    def on_arrival(self, request: int, model: ModelId) -> None:
        """A request came. Looked at with what comes next: it is only now given its slot."""
        self._driver.on_arrival(request, model)

    def on_started(self, request: int, model: ModelId) -> None:
        """It starts on a hot model, and once."""
        self._require(self._sim.models[model].state is State.HOT, f"{model} serves while not hot")
        self.started[request] += 1
        self._require(self.started[request] == 1, f"request {request} started twice")
        self._driver.on_started(request, model)

    def on_ended(self, request: int, model: ModelId) -> None:
        """It ends once, after it started."""
        self.ended[request] += 1
        self._require(self.ended[request] == 1, f"request {request} ended twice")
        self._require(self.started[request] == 1, f"request {request} ended before it started")
        self._driver.on_ended(request, model)
        self._check()

    def on_loaded(self, model: ModelId) -> None:
        """A load ended."""
        self._driver.on_loaded(model)
        self._check()

    def on_load_failed(self, model: ModelId, *, lied: bool) -> None:
        """A load ended without a hot model."""
        self._driver.on_load_failed(model, lied=lied)
        self._check()

    def on_node(self, node: int, lost: tuple[ModelId, ...], broken: tuple[int, ...]) -> None:
        """What was broken off has ended, without an answer."""
        for request in broken:
            self.ended[request] += 1
            self._require(self.ended[request] == 1, f"request {request} ended twice")
        self._driver.on_node(node, lost, broken)
        self._check()

    def on_timer(self, tag: str) -> None:
        """A timer."""
        self._driver.on_timer(tag)
        self._check()

    def check_end(self) -> None:
        """Everybody was served or broken off, once; every load has ended."""
        sim = self._sim
        for request, outcome in enumerate(sim.outcomes):
            self._require(self.ended[request] == 1, f"request {request} never ended")
            self._require(outcome.ended_s is not None, f"request {request} has no end")
            self._require(outcome.wait_s >= 0.0, f"request {request} began before it came")
        self._require(len(sim.outcomes) == len(sim.workload.arrivals), "a request was forgotten")
        self._require(not sim.loading, "a load never ended")
        tally = sim.tally
        resident = sum(model.state is State.HOT for model in sim.models.values())
        gone = tally.unloads + tally.failed_loads + tally.lost
        self._require(tally.loads == gone + resident, "loads and unloads do not add up")
        settled = tally.prefetches_used + tally.prefetches_wasted
        self._require(settled <= tally.prefetches <= tally.loads, "prefetches do not add up")
        self._account()

    def _check(self) -> None:
        self._happenings += 1
        if self._happenings % self._every == 0:
            self._account()

    def _account(self) -> None:
        sim = self._sim
        for number, node in enumerate(sim.nodes):
            held = [
                m for m in sim.models.values() if m.state is not State.COLD and m.node == number
            ]
            used_mb = sum(m.spec.size_mb for m in held)
            self._require(node.used_mb == used_mb, f"node {number}: memory does not add up")
            loading = sum(m.state is State.LOADING for m in held)
            self._require(node.loading == loading, f"node {number}: loads do not add up")
            self._require(loading <= PARALLEL_LOADS, f"node {number}: {loading} loads at once")
            self._require(node.alive or not held, f"node {number}: models on a dead node")
            self._require(
                node.used_mb <= node.capacity_mb or not sim.check_memory,
                f"node {number}: {node.used_mb} of {node.capacity_mb} MB",
            )
        for name, model in sim.models.items():
            self._check_model(name, model)
        self._nobody_starves()

    def _check_model(self, name: ModelId, model: SimModel) -> None:
        self._require(0 <= model.in_flight <= model.spec.parallel, f"{name}: slots overdrawn")
        self._require(model.in_flight == len(model.running), f"{name}: slots do not add up")
        self._require(not model.in_flight or model.state is State.HOT, f"{name} serves while cold")
        full = model.in_flight == model.spec.parallel
        takes_more = model.state is State.HOT and not model.draining and not full
        self._require(not (takes_more and model.queue), f"{name}: a free slot idles")

    def _nobody_starves(self) -> None:
        sim = self._sim
        if self.name == COUNTS_MODELS:
            return  # room is no reason to load where models are counted
        waiting = [
            (min(request for _, request in model.queue), name)
            for name, model in sim.models.items()
            if model.queue and model.state is State.COLD and sim.now_s >= model.cooldown_until_s
        ]
        if not waiting:
            return
        request, name = min(waiting)
        since_s = max(sim.outcomes[request].arrival.at_s, sim.models[name].cooldown_until_s)
        could = all(self._could_start(name, number) for number in range(len(sim.nodes)))
        if not could:
            self._over_since_s.pop(request, None)
            return
        could_since_s = max(since_s, self._over_since_s.setdefault(request, sim.now_s))
        self._require(
            sim.now_s - could_since_s <= STARVATION_S,
            f"request {request} for {name} waits although it could be loaded",
        )

    def _could_start(self, name: ModelId, number: int) -> bool:
        sim, node = self._sim, self._sim.nodes[number]
        idle_mb = sum(sim.models[idle].spec.size_mb for idle in sim.idle_models(number))
        return (
            node.alive
            and node.loading < PARALLEL_LOADS
            and sim.models[name].spec.size_mb <= sim.free_mb(number) + idle_mb
        )

    def _require(self, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - what is checked
        if not holds:
            raise Violation(f"at {self._sim.now_s:.3f} s, {self.name}: {otherwise}")


def check_plan(world: WorldSnapshot, result: PlanResult) -> None:
    """Of one plan: victims are free to go, loads fit in what is believed, all has a reason.

    Raises
    ------
    Violation
        Says which of these does not hold.
    """
    decided = {(decision.subject, decision.reason) for decision in result.plan.decisions}
    for decision in result.plan.decisions:
        _require(world, bool(decision.evidence), f"{decision.reason} has no figures")
    ordered = (a for a in result.plan.actions if isinstance(a, LoadModel | UnloadModel))
    for action in ordered:
        reasoned = (action.model, action.reason) in decided
        _require(world, reasoned, f"{type(action).__name__} {action.model} has no decision")
        if isinstance(action, UnloadModel):
            _check_victim(world, action)
    if result.plan.actions:
        _check_budget(world, commit(world, result.plan))
    _require(
        world,
        result.next_tick_at_s > world.taken_at_s,
        f"asks to be asked again at {result.next_tick_at_s:g}",
    )


def _check_victim(world: WorldSnapshot, action: UnloadModel) -> None:
    victim = world.models[action.model]
    # One whose turn is over goes when its last request has ended; a ghost serves nobody.
    may_be_busy = action.reason is Reason.GHOST or action.drain_s is not None
    idle = not victim.in_flight
    _require(world, may_be_busy or idle, f"{action.model} is evicted while it serves")
    unwanted = may_be_busy or not victim.waiting
    _require(world, unwanted, f"{action.model} is evicted while waited for")
    _require(world, not victim.pinned, f"{action.model} is evicted though pinned")


def _check_budget(before: WorldSnapshot, after: WorldSnapshot) -> None:
    """With what drains gone no node holds more than it has, unless it did before the plan."""
    for name, node in before.nodes.items():
        if node.memory_total_bytes is None:
            continue
        room_bytes = node.memory_total_bytes - node.used_by_others_bytes
        held = sum(m.occupied_bytes for m in before.models.values() if m.node == name)
        holds = sum(
            m.occupied_bytes
            for m in after.models.values()
            if m.node == name and m.residency not in _GOING
        )
        _require(before, holds <= max(room_bytes, held), f"{name}: {holds} of {room_bytes} bytes")


def _require(world: WorldSnapshot, holds: bool, otherwise: str) -> None:  # noqa: FBT001 - as above
    if not holds:
        raise Violation(f"plan at {world.taken_at_s:.3f} s: {otherwise}")
