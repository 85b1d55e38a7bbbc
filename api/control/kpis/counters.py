"""What is counted for Prometheus: only what happens while this process runs, so that it grows."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from api.control.kpis.journeys import Journey
from api.control.kpis.violations import WentAhead
from contracts.events import (
    AnyEvent,
    FeedbackGiven,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    NodeJoined,
    NodeLeft,
)
from contracts.ids import ModelId, NodeId

LOAD_BOUNDS_S = (1.0, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)

MAX_MODELS = 500
OTHER = "other"


class LiveCounters:
    """Counts events from ``start_at`` on; the log's history before it is no news to a scraper.

    Attributes
    ----------
    judged : Counter
        Requests by (model, class, met or missed).
    loads, unloads : Counter
        By (cause, loaded or failed), and by cause.
    load_buckets, load_sum_s :
        How long loads took: counts up to each of ``LOAD_BOUNDS_S`` and beyond, and their sum.
    feedback : Counter
        By good, middling and bad.
    violations, aged : Counter
        Requests that went before one of a higher class, by their class.
    energy_j : dict
        What the GPUs of each node used; a node that does not tell, or has left, is not there.
    instances : Counter
        Instances that came and went behind a name, by joined and left.
    """

    def __init__(self) -> None:
        self._since_s: float | None = None
        self._models: set[ModelId] = set()
        self.judged: Counter[tuple[str, str, str]] = Counter()
        self.loads: Counter[tuple[str, str]] = Counter()
        self.unloads: Counter[str] = Counter()
        self.load_buckets = [0] * (len(LOAD_BOUNDS_S) + 1)
        self.load_sum_s = 0.0
        self.feedback: Counter[str] = Counter()
        self.violations: Counter[str] = Counter()
        self.aged: Counter[str] = Counter()
        self.energy_j: dict[NodeId, float] = {}
        self.instances: Counter[str] = Counter()

    def start_at(self, now_s: float) -> None:
        """From now on."""
        self._since_s = now_s

    def observe(self, event: AnyEvent) -> None:
        """Take in one event."""
        if self._since_s is None or event.at_s < self._since_s:
            return
        match event:
            case ModelLoaded():
                self.loads[event.cause.value, "loaded"] += 1
                if event.load_s is not None:
                    self.load_buckets[bisect_left(LOAD_BOUNDS_S, event.load_s)] += 1
                    self.load_sum_s += event.load_s
            case ModelLoadFailed():
                self.loads[event.cause.value, "failed"] += 1
            case ModelUnloaded():
                self.unloads[event.cause.value] += 1
            case FeedbackGiven():
                self.feedback[_word(event.score)] += 1
            case NodeJoined():
                self.instances["joined"] += 1
            case NodeLeft():
                self.instances["left"] += 1
                self.energy_j.pop(event.node, None)
            case _:
                pass

    def ended(self, journey: Journey) -> None:
        """A request has ended."""
        if journey.met is None or journey.model is None or self._since_s is None:
            return
        if journey.ended_at_s is None or journey.ended_at_s < self._since_s:
            return
        result = "met" if journey.met else "missed"
        self.judged[self._label(journey.model), journey.priority.value, result] += 1

    def went_ahead(self, ahead: WentAhead, at_s: float) -> None:
        """A request went before one of a higher class."""
        if self._since_s is not None and at_s >= self._since_s:
            counted = self.aged if ahead.is_aged else self.violations
            counted[ahead.priority.value] += 1

    def used_energy(self, node: NodeId, used_j: float | None, at_s: float) -> None:
        """The GPUs of a node used so much since they told last."""
        if used_j is not None and self._since_s is not None and at_s >= self._since_s:
            self.energy_j[node] = self.energy_j.get(node, 0.0) + used_j

    def _label(self, model: ModelId) -> str:
        if model not in self._models:
            if len(self._models) >= MAX_MODELS:
                return OTHER
            self._models.add(model)
        return model


def _word(score: float) -> str:
    if score >= 2 / 3:
        return "good"
    return "bad" if score <= 1 / 3 else "middling"
