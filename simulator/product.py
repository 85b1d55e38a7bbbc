"""The product's own fold, predictor engine and planner as a driver of the simulation.

Called in lock step: what happened becomes an event, the event goes to the predictor and into
the world, the planner is asked, and its plan is carried out at once. No policy is copied here.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol, TypedDict

from contracts.config import PlannerConfig
from contracts.errors import Invalid
from contracts.events import (
    AnyEvent,
    LoadCause,
    ModelLoaded,
    ModelUnloaded,
    NodeObserved,
    PriorityClass,
    RequestCompleted,
    RequestDispatched,
    RequestReceived,
)
from contracts.forecasts import ModelForecast
from contracts.ids import ModelId, NodeId, RequestId
from contracts.plan import LoadModel, PlannerState, UnloadModel
from contracts.world import Mode, ModelStatus, Residency, WorldSnapshot
from controller.fold import commit, fold
from controller.memory import usable_bytes
from controller.planner import plan
from simulator.simulation import Simulation
from simulator.workloads import MIB

NODE = NodeId("sim")

PUBLISH_S = 10.0
"""How often the predictor is asked for everything, as in a deployment."""

_RENEW = "renew"


class _Stamp(TypedDict):
    event_id: str
    at_s: float
    source: str


class Engine(Protocol):
    """What the predictor's engine is to the simulation."""

    def observe(self, event: AnyEvent) -> None: ...

    def tick(self, now_s: float) -> tuple[ModelForecast, ...]: ...

    def renewals(self, now_s: float) -> tuple[ModelForecast, ...]: ...


class ProductDriver:
    """The planner in the loop.

    Parameters
    ----------
    engine : Engine or None
        None: no forecasts, as when the predictor is away.
    """

    def __init__(self, name: str, engine: Engine | None, config: PlannerConfig) -> None:
        self.name = name
        self._engine = engine
        self._config = config
        self._state = PlannerState()
        self._forecasts: dict[ModelId, ModelForecast] = {}
        self._sequence = 0
        self._timer_at_s = float("inf")

    def begin(self, simulation: Simulation) -> None:
        """Everything is cold; footprints and load times are known, as after a measured day.

        Raises Invalid where a model never fits beside the reserve: its requests would wait
        for ever.
        """
        self._sim = simulation
        models = {
            name: ModelStatus(
                model=name,
                node=NODE,
                footprint_bytes=model.spec.footprint_bytes,
                load_s=model.spec.load_s,
                residency=Residency.COLD,
            )
            for name, model in simulation.models.items()
        }
        self._world = WorldSnapshot(taken_at_s=simulation.now_s, mode=Mode.ACTIVE, models=models)
        self._fold(
            NodeObserved(
                **self._stamp(),
                node=NODE,
                resident=(),
                busy=(),
                memory_total_bytes=simulation.capacity_mb * MIB,
                memory_used_bytes=0,
                model_limit=None,
            )
        )
        usable = usable_bytes(self._world.nodes[NODE], self._config)
        largest = max(models.values(), key=lambda model: model.footprint_bytes or 0)
        if usable is not None and usable < (largest.footprint_bytes or 0):
            raise Invalid(
                f"capacity of {simulation.capacity_mb} MB less a reserve of "
                f"{self._config.reserve_ratio:.0%} does not hold {largest.model} "
                f"({simulation.models[largest.model].spec.size_mb} MB)"
            )
        if self._engine is not None:
            simulation.wake_at(simulation.now_s, _RENEW)
        self._tick_later(simulation.now_s)

    def on_arrival(self, request: int, model: ModelId) -> None:
        """A gateway received it."""
        event = RequestReceived(
            **self._stamp(),
            request_id=RequestId(str(request)),
            model=model,
            operation="chat",
            priority=PriorityClass.REALTIME,
            client="",
            stream=False,
        )
        self._fold(event)
        if self._engine is not None:
            self._take(self._engine.renewals(self._sim.now_s))
        self._react()

    def on_started(self, request: int, model: ModelId) -> None:
        """It was sent to LocalAI."""
        outcome = self._sim.outcomes[request]
        self._fold(
            RequestDispatched(
                **self._stamp(),
                request_id=RequestId(str(request)),
                model=model,
                node=NODE,
                queue_wait_s=outcome.wait_s,
                cold=outcome.cold,
            )
        )

    def on_ended(self, request: int, model: ModelId) -> None:
        """Its answer ended."""
        outcome = self._sim.outcomes[request]
        self._fold(
            RequestCompleted(
                **self._stamp(),
                request_id=RequestId(str(request)),
                model=model,
                status=200,
                duration_s=self._sim.now_s - outcome.arrival.at_s,
                service_s=outcome.arrival.service_s,
                input_tokens=None,
                output_tokens=None,
            )
        )
        self._react()

    def on_loaded(self, model: ModelId) -> None:
        """A load ended."""
        spec = self._sim.models[model].spec
        self._fold(
            ModelLoaded(
                **self._stamp(),
                model=model,
                node=NODE,
                cause=LoadCause.DEMAND,
                load_s=spec.load_s,
                footprint_bytes=spec.footprint_bytes,
            )
        )
        self._react()

    def on_timer(self, tag: str) -> None:
        """The tick that the planner asked for; ``tag`` is its time, older ones are void."""
        if tag == _RENEW:
            self._renew()
            self._sim.wake_at(self._sim.now_s + PUBLISH_S, _RENEW)
        elif float(tag) != self._timer_at_s:
            return
        self._world = replace(self._world, taken_at_s=self._sim.now_s)
        self._react()

    def _react(self) -> None:
        """Plan, and again as long as unloads made room that the next plan may use."""
        while self._carry_out_plan():
            pass

    def _carry_out_plan(self) -> bool:
        """Whether anything was unloaded, which happens at once here."""
        result = plan(
            world=self._world,
            forecasts=self._forecasts,
            state=self._state,
            config=self._config,
        )
        self._state = result.state
        self._world = commit(self._world, result.plan)
        unloaded = False
        for action in result.plan.actions:
            match action:
                case UnloadModel():
                    unloaded = True
                    self._sim.unload(action.model)
                    self._fold(
                        ModelUnloaded(
                            **self._stamp(),
                            model=action.model,
                            node=NODE,
                            cause=action.cause,
                        )
                    )
                case LoadModel():
                    self._sim.start_load(action.model, prefetch=action.cause is LoadCause.PREFETCH)
                case _:
                    pass
        self._tick_later(result.next_tick_at_s)
        return unloaded

    def _renew(self) -> None:
        if self._engine is not None:
            self._take(self._engine.tick(self._sim.now_s))

    def _take(self, forecasts: tuple[ModelForecast, ...]) -> None:
        for forecast in forecasts:
            self._forecasts[forecast.model] = forecast

    def _tick_later(self, at_s: float) -> None:
        """Only what the last plan asked for counts."""
        if at_s != self._timer_at_s:
            self._timer_at_s = at_s
            self._sim.wake_at(at_s, repr(at_s))

    def _fold(self, event: AnyEvent) -> None:
        self._world = fold(self._world, event)
        if self._engine is not None:
            self._engine.observe(event)

    def _stamp(self) -> _Stamp:
        self._sequence += 1
        return _Stamp(event_id=f"s{self._sequence}", at_s=self._sim.now_s, source="sim")
