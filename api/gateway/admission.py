"""Who may go, who waits and in which order. Pure: time comes as an argument.

A request goes at once when its model can take it. Else it waits in the bounded queue of its
class, for its model to be resident or for a slot of its model. Within a model the order is
by class, but each class only has a head start over the next one, so that nobody starves.
Waiting requests are kept by model, and all that wait for a model go together.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from contracts.config import QueueConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId, RequestId

HEAD_START_S = {
    PriorityClass.REALTIME: 0.0,
    PriorityClass.BATCH: 60.0,
    PriorityClass.BACKGROUND: 120.0,
}
"""A request goes before all that arrived later than this after it, of whatever class."""

_RATE_WINDOW_S = 60.0
_RATE_SAMPLES = 64
_RETRY_AFTER_UNMEASURED_S = 5.0


class Verdict(StrEnum):
    """What becomes of a request that arrives."""

    GO = "go"
    WAIT = "wait"
    FULL = "full"
    """The queue of its class is full: it is refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """One request as admission sees it. ``arrived_at_s`` never steps."""

    request_id: RequestId
    model: ModelId
    priority: PriorityClass
    arrived_at_s: float

    @property
    def turn_s(self) -> float:
        """Where it stands in the order: ageing means that this never has to change."""
        return self.arrived_at_s + HEAD_START_S[self.priority]


class Admission:
    """The queues of one gateway, and what runs.

    Every ticket that ``arrive`` or ``release`` let go must come back through ``end``, and
    every one that waits leaves through ``release`` or ``leave``.
    """

    def __init__(self, config: QueueConfig, slots: Mapping[ModelId, int]) -> None:
        self._config = config
        self._slots = slots
        self._order = itertools.count()
        self._queues: dict[ModelId, list[tuple[float, int, Ticket]]] = {}
        self._queued: Counter[PriorityClass] = Counter()
        self._running: Counter[ModelId] = Counter()
        self._departures: dict[PriorityClass, deque[float]] = {
            priority: deque(maxlen=_RATE_SAMPLES) for priority in PriorityClass
        }

    @property
    def running(self) -> Mapping[ModelId, int]:
        """Requests that were let go and have not ended, by model; zero is left out."""
        return dict(self._running)

    @property
    def queued(self) -> Mapping[PriorityClass, int]:
        """Requests that wait, by class."""
        return {priority: self._queued[priority] for priority in PriorityClass}

    @property
    def waiting(self) -> Mapping[ModelId, int]:
        """Requests that wait, by model; zero is left out."""
        return {model: len(queue) for model, queue in self._queues.items()}

    def is_idle(self, model: ModelId) -> bool:
        """Whether nothing of it runs."""
        return model not in self._running

    def arrive(self, ticket: Ticket, *, ready: bool) -> Verdict:
        """A request has come; ``ready``: its model could serve it now."""
        model = ticket.model
        if ready and model not in self._queues and self.has_slot(model):
            self._running[model] += 1
            return Verdict.GO
        if self._queued[ticket.priority] >= self._config.capacity.get(ticket.priority, 0):
            return Verdict.FULL
        queue = self._queues.setdefault(model, [])
        heapq.heappush(queue, (ticket.turn_s, next(self._order), ticket))
        self._queued[ticket.priority] += 1
        return Verdict.WAIT

    def release(self, model: ModelId, now_s: float) -> tuple[Ticket, ...]:
        """Those who may go now that the model is ready, in their order, as slots allow."""
        queue = self._queues.get(model, [])
        released = []
        while queue and self.has_slot(model):
            _, _, ticket = heapq.heappop(queue)
            self._queued[ticket.priority] -= 1
            self._departures[ticket.priority].append(now_s)
            self._running[model] += 1
            released.append(ticket)
        if not queue:
            self._queues.pop(model, None)
        return tuple(released)

    def leave(self, ticket: Ticket) -> None:
        """One that waited gives up; nothing happens if it no longer waits."""
        queue = self._queues.get(ticket.model, [])
        left = [entry for entry in queue if entry[2] is not ticket]
        if len(left) == len(queue):
            return
        self._queued[ticket.priority] -= 1
        if left:
            heapq.heapify(left)
            self._queues[ticket.model] = left
        else:
            del self._queues[ticket.model]

    def end(self, model: ModelId) -> None:
        """One that was let go has ended."""
        assert self._running[model] > 0
        self._running[model] -= 1
        if not self._running[model]:
            del self._running[model]

    def resume(self, model: ModelId) -> None:
        """One that had ended for us, such as a silent websocket, runs again."""
        self._running[model] += 1

    def has_slot(self, model: ModelId) -> bool:
        """Whether one more may run beside those that do."""
        limit = self._slots.get(model)
        return limit is None or self._running[model] < limit

    def models_by_turn(self) -> tuple[ModelId, ...]:
        """Models that are waited for; first the one whose first request is most due."""
        return tuple(sorted(self._queues, key=lambda model: self._queues[model][0][:2]))

    def retry_after_s(self, priority: PriorityClass, now_s: float) -> float:
        """When to ask again: the time that the queue of this class takes to drain.

        By the rate at which requests of the class left it within the last minute, at least a
        second and at most as long as one may wait in it.
        """
        longest_s = max(1.0, self._config.timeout_s.get(priority, _RATE_WINDOW_S))
        recent = [at_s for at_s in self._departures[priority] if now_s - at_s <= _RATE_WINDOW_S]
        if not recent:
            return min(_RETRY_AFTER_UNMEASURED_S, longest_s)
        spent_s = max(1.0, now_s - recent[0])
        return min(longest_s, max(1.0, self._queued[priority] * spent_s / len(recent)))
