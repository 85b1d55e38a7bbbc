"""The product's own fold, predictor engine and planner as a driver of the simulation.

Called in lock step: what happened becomes an event, the event goes to the predictor and into
the world, the planner is asked, and its plan is carried out at once. No policy is copied here.
Where the run has faults, events come late or twice, orders may be refused as LocalAI would
refuse them, and a poll every 5 s says what is really so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from contracts.config import PlannerConfig
from contracts.errors import Invalid
from contracts.events import AnyEvent, LoadCause, UnloadCause
from contracts.forecasts import ModelForecast
from contracts.ids import ModelId, NodeId
from contracts.plan import LoadModel, PlannerState, PlanResult, UnloadModel
from contracts.world import Mode, ModelStatus, NodeStatus, Residency, WorldSnapshot
from controller.fold import commit, fold
from controller.homes import rehomed
from controller.memory import usable_bytes
from controller.planner import plan
from simulator.cluster_state import State
from simulator.simulation import PARALLEL_LOADS, Simulation
from simulator.telling import Teller
from simulator.workloads import MIB

NODE = NodeId("sim")

PUBLISH_S = 10.0
"""How often the predictor is asked for everything, as in a deployment."""

POLL_S = 5.0
"""How often a node is looked at where something may go wrong, as in a deployment."""

_RENEW, _POLL, _LATE, _DRAIN = "renew", "poll", "late", "drain"
_REFUSED_S = 5.0


class Planner(Protocol):
    """``controller.planner.plan``, or what stands for it."""

    def __call__(
        self,
        *,
        world: WorldSnapshot,
        forecasts: Mapping[ModelId, ModelForecast],
        state: PlannerState,
        config: PlannerConfig,
    ) -> PlanResult: ...


OnPlan = Callable[[WorldSnapshot, PlanResult], None]


class Engine(Protocol):
    """What the predictor's engine is to the simulation."""

    def observe(self, event: AnyEvent) -> object: ...

    def tick(self, now_s: float) -> tuple[ModelForecast, ...]: ...

    def renewals(self, now_s: float) -> tuple[ModelForecast, ...]: ...


class ProductDriver:
    """The planner in the loop.

    Parameters
    ----------
    engine : Engine or None
        None: no forecasts, as when the predictor is away.
    on_plan : callable
        Shown each plan beside the world that it was made from, before it is carried out.
    planner : callable
        Stands for the planner, such as one that measures it.
    """

    def __init__(
        self,
        name: str,
        engine: Engine | None,
        config: PlannerConfig,
        *,
        on_plan: OnPlan = lambda _world, _result: None,
        planner: Planner = plan,
    ) -> None:
        self.name = name
        self._engine = engine
        # Here an unload happens at once, so that a busy model cannot be asked to go in its turn.
        self._config = config
        self._on_plan = on_plan
        self._plan = planner
        self._state = PlannerState()
        self._forecasts: dict[ModelId, ModelForecast] = {}
        self._timer_at_s = float("inf")
        self._late: dict[str, AnyEvent] = {}
        self._told_until_s = float("-inf")
        self._drains: dict[ModelId, UnloadModel] = {}
        self._held: list[LoadModel] = []

    def begin(self, simulation: Simulation) -> None:
        """Everything is cold; footprints and load times are known, as after a measured day.

        Raises Invalid where a model never fits beside the reserve: its requests would wait
        for ever.
        """
        self._sim = simulation
        self._faulty = simulation.faults.any
        count = len(simulation.nodes)
        self._nodes = [NODE] if count == 1 else [NodeId(f"{NODE}-{n}") for n in range(count)]
        self._teller = Teller(simulation, self._nodes)
        models = {
            name: ModelStatus(
                model=name,
                node=self._nodes[0],
                footprint_bytes=model.spec.footprint_bytes,
                load_s=model.spec.load_s,
                residency=Residency.COLD,
            )
            for name, model in simulation.models.items()
        }
        self._world = WorldSnapshot(
            taken_at_s=simulation.now_s,
            mode=Mode.ACTIVE,
            models=models,
            nodes={
                node: NodeStatus(node=node, lists=tuple(sorted(models))) for node in self._nodes
            },
        )
        self._look()
        self._refuse_too_small()
        if self._engine is not None:
            simulation.wake_at(simulation.now_s, _RENEW)
        if self._faulty:
            simulation.wake_at(simulation.now_s + POLL_S, _POLL)
        self._tick_later(simulation.now_s)

    def on_arrival(self, request: int, model: ModelId) -> None:
        """A gateway received it."""
        self._tell(self._teller.received(request, model))
        if self._faulty and self._is_ghost(model):
            self._fold(self._teller.unloaded(model, UnloadCause.GHOST))
        if self._engine is not None:
            self._take(self._engine.renewals(self._sim.now_s))
        self._react()

    def on_started(self, request: int, model: ModelId) -> None:
        """It was sent to LocalAI."""
        self._tell(self._teller.dispatched(request, model))

    def on_ended(self, request: int, model: ModelId) -> None:
        """Its answer ended."""
        self._tell(self._teller.completed(request, model))
        if model in self._drains and self._sim.models[model].drained:
            self._gone(self._drains[model])
        self._react()

    def on_loaded(self, model: ModelId) -> None:
        """A load ended."""
        self._fold(self._teller.loaded(model))
        self._react()

    def on_load_failed(self, model: ModelId, *, lied: bool) -> None:
        """A load ended without a hot model; a lie is found out by the first request, or a poll."""
        if lied:
            self._fold(self._teller.loaded(model))
            if self._sim.models[model].queue:
                self._fold(self._teller.unloaded(model, UnloadCause.GHOST))
        else:
            self._fold(self._teller.load_failed(model, self._sim.faults.cooldown_s))
        self._react()

    def on_node(self, node: int, lost: tuple[ModelId, ...], broken: tuple[int, ...]) -> None:
        """Its requests break off at once; what else is so, the next poll shows."""
        for request in broken:
            self._tell(self._teller.failed(request))
        for model in lost:
            drain = self._drains.pop(model, None)
            if drain is not None:
                self._fold(self._teller.given_up(drain.action_id, "unload", model))
                self._call_off(model)
            if self._world.models[model].residency is Residency.LOADING:
                self._fold(self._teller.load_failed(model, _REFUSED_S))
        self._react()

    def on_timer(self, tag: str) -> None:
        """A renewal, a poll, a late event, or the tick that the last plan asked for."""
        kind = tag.partition(":")[0]
        if kind == _RENEW:
            self._renew()
        elif kind == _POLL:
            self._look()
            self._sim.wake_at(self._sim.now_s + POLL_S, _POLL)
        elif kind == _LATE:
            self._hear(self._late.pop(tag))
        elif kind == _DRAIN:
            self._give_up_drain(tag.partition(":")[2])
        elif float(tag) != self._timer_at_s:
            return
        now_s = max(self._world.taken_at_s, self._sim.now_s)
        self._world = replace(self._world, taken_at_s=now_s)
        self._react()

    # Deciding

    def _react(self) -> None:
        """Plan, and again as long as unloads made room that the next plan may use."""
        while self._carry_out_plan():
            pass

    def _carry_out_plan(self) -> bool:
        """Whether anything was unloaded, which happens at once here."""
        if len(self._nodes) > 1:
            self._world, _ = rehomed(self._world, self._config, {})
        result = self._plan(
            world=self._world,
            forecasts=self._forecasts,
            state=self._state,
            config=self._config,
        )
        self._on_plan(self._world, result)
        self._state = result.state
        self._world = commit(self._world, result.plan)
        unloaded = False
        for action in result.plan.actions:
            match action:
                case UnloadModel():
                    unloaded = self._unload(action) or unloaded
                case LoadModel():
                    self._load(action)
                case _:
                    pass
        self._tick_later(result.next_tick_at_s)
        return unloaded

    def _unload(self, action: UnloadModel) -> bool:
        """Whether it is gone; one that still serves may be drained first."""
        model = self._sim.models[action.model]
        if model.in_flight and action.drain_s is not None:
            self._drains[action.model] = action
            self._sim.drain(action.model)
            self._sim.wake_at(self._sim.now_s + action.drain_s, f"{_DRAIN}:{action.action_id}")
            return False
        if model.queue and action.drain_s is not None:
            # It came this very moment, when the turn was over: it comes with the next load.
            self._sim.drain(action.model)
        if self._faulty and (model.in_flight or model.state is State.LOADING):
            self._fold(self._teller.given_up(action.action_id, "unload", action.model))
            return False
        self._gone(action)
        return True

    def _gone(self, action: UnloadModel) -> None:
        """It leaves memory, and loads that waited for that begin."""
        self._drains.pop(action.model, None)
        if not self._faulty or self._sim.models[action.model].state is not State.COLD:
            self._sim.unload(action.model)
        self._fold(self._teller.unloaded(action.model, action.cause))
        for load in [load for load in self._held if action.model in load.after]:
            if not any(victim in self._drains for victim in load.after):
                self._held.remove(load)
                self._start(load)

    def _give_up_drain(self, action_id: str) -> None:
        """Its last request has not ended in time: it stays, and the load for its room is off."""
        action = next((a for a in self._drains.values() if a.action_id == action_id), None)
        if action is None:
            return
        del self._drains[action.model]
        self._sim.drain(action.model, on=False)
        self._fold(self._teller.given_up(action_id, "unload", action.model))
        self._call_off(action.model)

    def _call_off(self, victim: ModelId) -> None:
        """Loads that waited for this one to go are given up; the next plan sees what is so."""
        for load in [load for load in self._held if victim in load.after]:
            self._held.remove(load)
            self._fold(self._teller.given_up(load.action_id, "load", load.model))

    def _load(self, action: LoadModel) -> None:
        if any(victim in self._drains for victim in action.after):
            self._held.append(action)
        else:
            self._start(action)

    def _start(self, action: LoadModel) -> None:
        name, node = action.model, self._nodes.index(action.node)
        model = self._sim.models[name]
        if self._faulty and model.state is State.HOT:
            self._fold(self._teller.loaded(name))
            return
        if self._faulty and not self._would_start(name, node):
            if model.state is State.COLD:
                wait_s = max(_REFUSED_S, model.cooldown_until_s - self._sim.now_s)
                self._fold(self._teller.load_failed(name, wait_s))
            return
        self._sim.start_load(name, prefetch=action.cause is LoadCause.PREFETCH, node=node)

    def _would_start(self, name: ModelId, node: int) -> bool:
        """Whether LocalAI could carry out this load; what is believed may be out of date."""
        where, model = self._sim.nodes[node], self._sim.models[name]
        return (
            where.alive
            and where.loading < PARALLEL_LOADS
            and model.state is State.COLD
            and self._sim.now_s >= model.cooldown_until_s
            and self._sim.fits(name, node)
        )

    def _renew(self) -> None:
        assert self._engine is not None
        self._take(self._engine.tick(self._sim.now_s))
        self._sim.wake_at(self._sim.now_s + PUBLISH_S, _RENEW)

    def _take(self, forecasts: tuple[ModelForecast, ...]) -> None:
        for forecast in forecasts:
            self._forecasts[forecast.model] = forecast

    def _tick_later(self, at_s: float) -> None:
        """Only what the last plan asked for counts; it is never asked for in the past."""
        at_s = max(at_s, self._sim.now_s)
        if at_s != self._timer_at_s:
            self._timer_at_s = at_s
            self._sim.wake_at(at_s, repr(at_s))

    # What is told

    def _tell(self, event: AnyEvent) -> None:
        """What a gateway writes comes in its order, but it may come late or twice."""
        if not self._faulty:
            self._fold(event)
            return
        number, now_s = self._teller.count, self._sim.now_s
        self._told_until_s = max(self._told_until_s, now_s + self._sim.faults.event_delay_s(number))
        if self._told_until_s <= now_s:
            self._hear(event)
            return
        tag = f"{_LATE}:{number}"
        self._late[tag] = event
        self._sim.wake_at(self._told_until_s, tag)

    def _hear(self, event: AnyEvent) -> None:
        self._fold(event)
        if self._sim.faults.is_doubled(int(event.event_id[1:])):
            self._fold(event)

    def _fold(self, event: AnyEvent) -> None:
        self._world = fold(self._world, event)
        if self._engine is not None:
            self._engine.observe(event)

    def _look(self) -> None:
        """What one poll of each node finds."""
        for number in range(len(self._nodes)):
            known = self._world.nodes[self._nodes[number]]
            if self._sim.nodes[number].alive:
                self._fold(self._teller.observed(number))
            elif known.alive:
                self._fold(self._teller.lost(number))

    def _is_ghost(self, model: ModelId) -> bool:
        return (
            self._world.models[model].residency is Residency.HOT
            and self._sim.models[model].state is State.COLD
        )

    def _refuse_too_small(self) -> None:
        usable = usable_bytes(self._world.nodes[self._nodes[0]], self._config)
        specs = [model.spec for model in self._sim.models.values()]
        largest = max(specs, key=lambda spec: spec.size_mb)
        if usable is not None and usable < largest.size_mb * MIB:
            raise Invalid(
                f"capacity of {self._sim.capacity_mb} MB less a reserve of "
                f"{self._config.reserve_ratio:.0%} does not hold {largest.model} "
                f"({largest.size_mb} MB)"
            )
