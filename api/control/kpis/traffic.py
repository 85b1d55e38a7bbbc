"""Requests by model and class: how many, how well, how long, in the last hour, day and week."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from api.control.kpis.budget import Judged
from api.control.kpis.journeys import Journey
from api.control.kpis.rings import TwoRings, Window
from api.control.kpis.spread import Spread
from api.control.kpis.violations import WentAhead
from contracts.events import Origin, PriorityClass
from contracts.ids import ModelId

TOLERATED = 4.0
"""Apdex: up to so many times the target a request is tolerated, beyond it counts for nothing."""

Key = tuple[ModelId | None, PriorityClass]


class Traffic:
    """Counts of requests that ended; what is not told of one is not counted as zero.

    Attributes
    ----------
    failed : int
        Through no fault of the caller; ``refused`` are those that were its doing.
    judged, met, tolerated : int
        Held against the target, and of them those within it, and those within four times it.
    violations, aged : int
        Those that went before one of a higher class; the latter by ageing, as is meant to be.
    token_requests : int
        Those whose tokens are known.
    """

    __slots__ = (
        "aged",
        "cancelled",
        "cold",
        "completed",
        "dispatched",
        "duration",
        "ended",
        "failed",
        "good",
        "input_tokens",
        "judged",
        "met",
        "output_tokens",
        "refused",
        "scored",
        "service_s",
        "token_requests",
        "tolerated",
        "ttft",
        "violations",
        "wait",
    )

    def __init__(self) -> None:
        self.ended = self.completed = self.failed = self.refused = self.cancelled = 0
        self.dispatched = self.cold = self.judged = self.met = self.tolerated = 0
        self.token_requests = self.input_tokens = self.output_tokens = self.scored = 0
        self.violations = self.aged = 0
        self.service_s = 0.0
        self.good = 0.0
        self.wait, self.ttft, self.duration = Spread(), Spread(), Spread()

    def add(self, journey: Journey) -> None:
        """One request that has ended."""
        self.ended += 1
        self._count_outcome(journey)
        if journey.dispatched_at_s is not None:
            self.dispatched += 1
            self.cold += bool(journey.cold)
        for spread, value in (
            (self.wait, journey.wait_s),
            (self.ttft, journey.ttft_s),
            (self.duration, journey.duration_s if journey.outcome == "completed" else None),
        ):
            if value is not None:
                spread.add(value)
        if journey.met is not None:
            self.judged += 1
            self.met += journey.met
            self.tolerated += not journey.met and _is_tolerated(journey)
        self.service_s += journey.service_s or 0.0
        if journey.input_tokens is not None or journey.output_tokens is not None:
            self.token_requests += 1
            self.input_tokens += journey.input_tokens or 0
            self.output_tokens += journey.output_tokens or 0

    def _count_outcome(self, journey: Journey) -> None:
        if journey.outcome == "cancelled":
            self.cancelled += 1
        elif journey.outcome == "failed":
            if journey.origin is Origin.CLIENT:
                self.refused += 1
            else:
                self.failed += 1
        elif journey.status is not None and journey.status >= 500:
            self.failed += 1
        elif journey.status is not None and journey.status >= 400:
            self.refused += 1
        else:
            self.completed += 1

    def merge(self, other: Traffic) -> None:
        """Take in all that ``other`` counted."""
        # Written out: it runs once for each hour of each model and class.
        self.ended += other.ended
        self.completed += other.completed
        self.failed += other.failed
        self.refused += other.refused
        self.cancelled += other.cancelled
        self.dispatched += other.dispatched
        self.cold += other.cold
        self.judged += other.judged
        self.met += other.met
        self.tolerated += other.tolerated
        self.token_requests += other.token_requests
        self.input_tokens += other.input_tokens
        self.output_tokens += other.output_tokens
        self.scored += other.scored
        self.good += other.good
        self.violations += other.violations
        self.aged += other.aged
        self.service_s += other.service_s
        self.wait.merge(other.wait)
        self.ttft.merge(other.ttft)
        self.duration.merge(other.duration)

    @property
    def success_ratio(self) -> float | None:
        """Completed among those that were ours to answer; None: there were none."""
        ours = self.completed + self.failed
        return self.completed / ours if ours else None

    @property
    def attainment_ratio(self) -> float | None:
        """None: nothing was judged."""
        return self.met / self.judged if self.judged else None

    @property
    def apdex(self) -> float | None:
        """(satisfied + tolerated / 2) / judged."""
        return (self.met + self.tolerated / 2) / self.judged if self.judged else None

    @property
    def satisfaction_ratio(self) -> float | None:
        """The mean of what people said; None: nobody did."""
        return self.good / self.scored if self.scored else None


def summed(parts: Iterable[Traffic]) -> Traffic:
    """All of them together."""
    whole = Traffic()
    for part in parts:
        whole.merge(part)
    return whole


class TrafficBook:
    """Requests of each model and class, and of each class over all models.

    ``max_pairs``: pairs of model and class kept; beyond it the one that was heard of longest
    ago goes and is counted in ``forgotten``. The sums over all models keep what it had.
    """

    def __init__(self, *, max_pairs: int = 600) -> None:
        self._max_pairs = max_pairs
        self._pairs: OrderedDict[Key, TwoRings[Traffic]] = OrderedDict()
        self._classes = {priority: TwoRings(Traffic) for priority in PriorityClass}
        self.forgotten = 0

    def ended(self, journey: Journey) -> None:
        """Count one request at the time of its end."""
        assert journey.ended_at_s is not None
        for rings in self._rings(journey):
            for cell in rings.at(journey.ended_at_s):
                cell.add(journey)

    def drop(self, model: ModelId) -> None:
        """Forget a name that turned out to be no model; the sums keep its requests."""
        for priority in PriorityClass:
            self._pairs.pop((model, priority), None)

    def scored(self, journey: Journey, score: float, at_s: float, *, before: float | None) -> None:
        """Somebody said how it was; ``before`` is what was said of it until now."""
        for rings in self._rings(journey):
            for cell in rings.at(at_s):
                cell.good += score - (before or 0.0)
                cell.scored += before is None

    def went_ahead(self, ahead: WentAhead, at_s: float) -> None:
        """A request went before one of a higher class."""
        for cell in self._classes[ahead.priority].at(at_s):
            cell.violations += not ahead.is_aged
            cell.aged += ahead.is_aged

    def of(
        self,
        window: Window | float,
        now_s: float,
        *,
        model: ModelId | None = None,
        priority: PriorityClass | None = None,
    ) -> Traffic:
        """The sums of a window; None: over all models, or all classes."""
        length_s = window.length_s if isinstance(window, Window) else window
        classes = PriorityClass if priority is None else (priority,)
        found = (
            self._classes[each] if model is None else self._pairs.get((model, each))
            for each in classes
        )
        return summed(
            cell for rings in found if rings is not None for cell in rings.over(now_s, length_s)
        )

    def judged(self, model: ModelId, length_s: float, now_s: float) -> Judged:
        """How many requests of a model were held against its target, and how many met it."""
        judged = met = 0
        for priority in PriorityClass:
            rings = self._pairs.get((model, priority))
            for cell in () if rings is None else rings.over(now_s, length_s):
                judged += cell.judged
                met += cell.met
        return Judged(judged=judged, met=met)

    def models(self) -> list[ModelId]:
        """All that something is kept of, by name."""
        return sorted({model for model, _ in self._pairs if model is not None})

    def _rings(self, journey: Journey) -> list[TwoRings[Traffic]]:
        rings = [self._classes[journey.priority]]
        if journey.model is not None:
            rings.append(self._pair((journey.model, journey.priority)))
        return rings

    def _pair(self, key: Key) -> TwoRings[Traffic]:
        rings = self._pairs.get(key)
        if rings is None:
            rings = self._pairs[key] = TwoRings(Traffic)
            if len(self._pairs) > self._max_pairs:
                self._pairs.popitem(last=False)
                self.forgotten += 1
        else:
            self._pairs.move_to_end(key)
        return rings


def _is_tolerated(journey: Journey) -> bool:
    told_s = journey.judged_s
    return (
        told_s is not None
        and journey.target_s is not None
        and told_s <= TOLERATED * journey.target_s
    )
