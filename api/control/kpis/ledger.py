"""All key figures together: one fold over events, and what the world shows. No clock, no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from api.control.kpis.budget import WEEK_S, Budget, budget
from api.control.kpis.counters import LiveCounters
from api.control.kpis.holding import HoldingBook
from api.control.kpis.journeys import Journey, Journeys
from api.control.kpis.loads import LoadBook
from api.control.kpis.panels import PanelBook
from api.control.kpis.traffic import TrafficBook
from api.control.kpis.violations import PriorityWatch
from contracts.events import (
    AnyEvent,
    FeedbackGiven,
    ModelLoaded,
    ModelUnloaded,
    NodeLeft,
    NodeObserved,
    RequestReceived,
)
from contracts.ids import ModelId, NodeId
from contracts.world import ModelStatus, NodeStatus, Residency, WorldSnapshot

_MOST_NODES = 200

_RESIDENT = frozenset({Residency.HOT, Residency.DRAINING, Residency.UNLOADING})


class KpiLedger:
    """Every event goes in by ``observe``; from the moment that all are read, so do worlds.

    Parameters
    ----------
    target_s : callable
        The latency target of a model, as it is when a request ends.
    """

    def __init__(self, target_s: Callable[[ModelId], float]) -> None:
        self.traffic = TrafficBook()
        self.loads = LoadBook()
        self.holding = HoldingBook()
        self.panels = PanelBook()
        self.priorities = PriorityWatch()
        self.counters = LiveCounters()
        self.journeys = Journeys(target_s, on_end=self._ended)
        self._nodes: dict[NodeId, NodeStatus] = {}
        self._totals: dict[NodeId, int] = {}

    def observe(self, event: AnyEvent) -> None:
        """Take in one event of the log, in its order."""
        self._feedback_before(event)
        self.journeys.observe(event)
        self.loads.observe(event)
        ahead = self.priorities.observe(event)
        if ahead is not None:
            self.traffic.went_ahead(ahead, event.at_s)
            self.counters.went_ahead(ahead, event.at_s)
        self.counters.observe(event)
        match event:
            case RequestReceived() if event.model is not None:
                self.holding.arrived(event.model, event.at_s)
            case ModelLoaded():
                self.holding.loaded(
                    event.model,
                    event.at_s,
                    size_bytes=event.footprint_bytes,
                    gpu_share=self._share(event.node, event.footprint_bytes),
                )
                if event.load_s is not None:
                    self.panels.load_took(event.load_s, event.at_s)
            case ModelUnloaded():
                self.holding.unloaded(event.model, event.at_s)
            case NodeObserved():
                self._observed(event)
            case NodeLeft():
                self._totals.pop(event.node, None)
                self.panels.forget(event.node)
            case _:
                pass

    def drop(self, model: ModelId) -> None:
        """Forget a name that turned out to be no model. Its requests stay, and count in sums."""
        self.holding.drop(model)
        self.traffic.drop(model)

    def saw(self, world: WorldSnapshot, now_s: float) -> None:
        """The newest world: what is resident without an event, and how many wait."""
        self._nodes = dict(world.nodes)
        self.panels.queued(world.queues, now_s)
        for status in world.models.values():
            self._correct(status, now_s)

    def decided(self, at_s: float) -> None:
        """A decision was made."""
        self.panels.decided(at_s)

    def budget_of(
        self, model: ModelId, percentile: float, now_s: float, *, expected_1h: float | None
    ) -> Budget:
        """The error budget of one model's target."""
        return budget(
            percentile,
            week=self.traffic.judged(model, WEEK_S, now_s),
            six_hours=self.traffic.judged(model, 6 * 3600.0, now_s),
            hour=self.traffic.judged(model, 3600.0, now_s),
            expected_requests_1h=expected_1h,
        )

    def forgotten(self) -> Counter[str]:
        """What was let go at a bound, by what it was."""
        return Counter(
            {
                "open_requests": self.journeys.forgotten,
                "traffic": self.traffic.forgotten,
                "loads": self.loads.forgotten,
                "holdings": self.holding.forgotten,
            }
        )

    def _ended(self, journey: Journey) -> None:
        self.traffic.ended(journey)
        self.counters.ended(journey)

    def _feedback_before(self, event: AnyEvent) -> None:
        """Feedback that comes again replaces what was said before, so both are needed."""
        if not isinstance(event, FeedbackGiven):
            return
        journey = self.journeys.get(event.request_id)
        if journey is not None:
            self.traffic.scored(journey, event.score, event.at_s, before=journey.score)

    def _observed(self, event: NodeObserved) -> None:
        if event.memory_total_bytes is not None and len(self._totals) < _MOST_NODES:
            self._totals[event.node] = event.memory_total_bytes
        if event.reading is not None:
            used_j = self.panels.read(event.node, event.reading, event.at_s)
            self.counters.used_energy(event.node, used_j, event.at_s)

    def _correct(self, status: ModelStatus, now_s: float) -> None:
        resident = status.residency in _RESIDENT
        model, holding = status.model, self.holding
        if resident:
            since_s = now_s if holding.is_resident(model) else status.residency_since_s
            holding.loaded(
                model,
                since_s,
                size_bytes=status.footprint_bytes,
                gpu_share=self._share(status.node, status.footprint_bytes),
            )
        elif holding.is_resident(model):
            holding.unloaded(model, max(status.residency_since_s, 0.0))

    def _share(self, node_name: NodeId, size_bytes: int | None) -> float | None:
        """The share of a GPU node's memory that a model takes; None: not told, or no GPU."""
        node = self._nodes.get(node_name)
        if size_bytes is None or (node is not None and node.accelerator == "cpu"):
            return None
        total = self._totals.get(node_name) if node is None else node.memory_total_bytes
        return min(1.0, size_bytes / total) if total else None
