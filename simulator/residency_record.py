"""When which model was loading or hot in a run: what a picture of it is drawn from."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from contracts.ids import ModelId
from simulator.cluster_state import State
from simulator.simulation import Driver, Simulation


@dataclass(frozen=True, slots=True)
class Span:
    """A model was so from one moment for a while."""

    model: ModelId
    state: State
    prefetched: bool
    from_s: float
    length_s: float


class ResidencyRecord:
    """Passes everything on to a driver and notes what changed."""

    def __init__(self, driver: Driver) -> None:
        self.name = driver.name
        self._driver = driver
        self._spans: list[Span] = []
        self._since: dict[ModelId, tuple[State, bool, float]] = {}

    @property
    def began_s(self) -> float:
        """The first request."""
        return self._sim.outcomes[0].arrival.at_s

    @property
    def spans(self) -> tuple[Span, ...]:
        """All of them, those included that last to the end of the run."""
        now_s = self._sim.now_s
        open_spans = (
            Span(model, state, prefetched, since_s, now_s - since_s)
            for model, (state, prefetched, since_s) in self._since.items()
        )
        return (*self._spans, *open_spans)

    def busiest(self, count: int) -> tuple[ModelId, ...]:
        """The models that were asked for most, in that order."""
        asked = Counter(outcome.arrival.model for outcome in self._sim.outcomes)
        return tuple(sorted(asked, key=lambda model: (-asked[model], model))[:count])

    def waits(self) -> list[float]:
        """Seconds waited by each request, in ascending order."""
        return sorted(outcome.wait_s for outcome in self._sim.outcomes)

    def begin(self, simulation: Simulation) -> None:
        """Called once, before the first event."""
        self._sim = simulation
        self._driver.begin(simulation)

    def on_arrival(self, request: int, model: ModelId) -> None:
        """See ``Driver``; what an answer changes is noted after each."""
        self._driver.on_arrival(request, model)
        self._note()

    def on_started(self, request: int, model: ModelId) -> None:
        """A request started."""
        self._driver.on_started(request, model)

    def on_ended(self, request: int, model: ModelId) -> None:
        """A request ended."""
        self._driver.on_ended(request, model)
        self._note()

    def on_loaded(self, model: ModelId) -> None:
        """A load ended."""
        self._driver.on_loaded(model)
        self._note()

    def on_load_failed(self, model: ModelId, *, lied: bool) -> None:
        """A load ended without a hot model."""
        self._driver.on_load_failed(model, lied=lied)
        self._note()

    def on_node(self, node: int, lost: tuple[ModelId, ...], broken: tuple[int, ...]) -> None:
        """A node changed."""
        self._driver.on_node(node, lost, broken)
        self._note()

    def on_timer(self, tag: str) -> None:
        """A timer."""
        self._driver.on_timer(tag)
        self._note()

    def _note(self) -> None:
        now_s = self._sim.now_s
        for name, model in self._sim.models.items():
            state, prefetched, since_s = self._since.get(name, (State.COLD, False, now_s))
            if model.state is not state:
                if state is not State.COLD:
                    self._spans.append(Span(name, state, prefetched, since_s, now_s - since_s))
                    del self._since[name]
                if model.state is not State.COLD:
                    self._since[name] = (model.state, model.prefetched, now_s)
