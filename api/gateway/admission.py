"""Who may go, who waits and in which order. Pure: time comes as an argument.

A request goes at once when its model can take it. Else it waits in the bounded queue of its
class, for its model to be resident or for a slot of its model. Waiting requests are kept by
model, all that wait for a model go together, and within a model the order is that of
``priority.standing_s``, which never changes while a request waits.

Two rules stand beside that order, so that no class starves another:

- one that has waited for ``longest_wait_s`` and is the first of its class takes the next slot;
- when one of a lower class went before one of a higher class, by age, the next slot is the
  higher class's. So a backlog of old work takes every second slot and not all of them.

Together: of those that have waited for ``longest_wait_s`` for a slot of their model, the first
to come starts at the latest with the second slot that gets free.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from api.gateway.group_shares import GroupShares
from api.gateway.priority import SERVICE_LEVEL, efficiency, model_standing_s, standing_s
from api.gateway.slots import SlotBook
from contracts.config import QueueConfig
from contracts.events import PriorityClass
from contracts.groups import Groups
from contracts.ids import ModelId, RequestId
from contracts.routing import ModelRoute

_RATE_WINDOW_S = 60.0
_RATE_SAMPLES = 64
_RETRY_AFTER_UNMEASURED_S = 5.0
_SERVICE_SHARE = 0.2
_MAX_SERVICES = 5_000
_UNMEASURED_SERVICE_S = 1.0

_Place = tuple[float, int, "Ticket"]


class Verdict(StrEnum):
    """What becomes of a request that arrives."""

    GO = "go"
    WAIT = "wait"
    FULL = "full"
    """The queue of its class is full: it is refused."""


@dataclass(slots=True, kw_only=True, eq=False)
class Ticket:
    """One request as admission sees it. ``arrived_at_s`` never steps.

    ``user_weight`` is what its client's key weighs, 0 to 1. ``instead_of``: the model that was
    asked for, where ``model`` is a lower rung of its ladder.
    """

    request_id: RequestId
    model: ModelId
    priority: PriorityClass
    arrived_at_s: float
    client: str = ""
    user_weight: float = 1.0
    instead_of: ModelId | None = None
    waits_as: str | None = None
    """The group that it is counted under while it waits; None: under none."""


@dataclass(slots=True)
class _Queue:
    """All that wait for one model: a heap for each class, and who of them has left."""

    heaps: dict[PriorityClass, list[_Place]] = field(
        default_factory=lambda: {priority: [] for priority in PriorityClass}
    )
    gone: set[Ticket] = field(default_factory=set)
    sizes: Counter[PriorityClass] = field(default_factory=Counter)
    aged_went: bool = False
    """The last one that went had a higher class waiting behind it."""

    @property
    def size(self) -> int:
        return self.sizes.total()


class Admission:
    """The queues of one gateway, and what runs.

    Every ticket that ``arrive`` or ``release`` let go must come back through ``end`` or
    ``put_back``, and every one that waits leaves through ``release`` or ``leave``.

    Attributes
    ----------
    places : callable
        How many of so many places of a class this gateway may use beside others.
    """

    def __init__(
        self, config: QueueConfig, slots: SlotBook, shares: GroupShares | None = None
    ) -> None:
        self._config = config
        self.slots = slots
        self.places: Callable[[PriorityClass, int], int] = lambda _priority, places: places
        self.shares = GroupShares({}) if shares is None else shares
        self._order = itertools.count()
        self._queues: dict[ModelId, _Queue] = {}
        self._places: dict[Ticket, tuple[float, int]] = {}
        self._waits: set[Ticket] = set()
        self._queued: Counter[PriorityClass] = Counter()
        self._running: Counter[ModelId] = Counter()
        self._by_client: Counter[str] = Counter()
        self._services_s: dict[ModelId, float] = {}
        self._departures: dict[PriorityClass, deque[float]] = {
            priority: deque(maxlen=_RATE_SAMPLES) for priority in PriorityClass
        }

    def configure(
        self, config: QueueConfig, slots: Mapping[ModelId, int], groups: Groups | None = None
    ) -> None:
        """The configuration has changed: it holds for who comes from now on."""
        self._config = config
        self.slots.configure(slots)
        self.shares.configure(groups or {})

    def tell(self, routes: Collection[ModelRoute]) -> None:
        """What the controller says of all models: slots, groups, and cores of those on CPUs."""
        self.slots.tell({route.model: route.slots for route in routes if route.slots})
        self.shares.tell(
            {route.model: route.group for route in routes if route.group},
            {route.model: route.cores for route in routes if route.cores is not None},
        )

    @property
    def running(self) -> Mapping[ModelId, int]:
        """Requests that were let go and have not ended, by model; zero is left out."""
        return dict(self._running)

    @property
    def queued(self) -> Mapping[PriorityClass, int]:
        """Requests that wait, by class."""
        return {priority: self._queued[priority] for priority in PriorityClass}

    @property
    def capacity(self) -> Mapping[PriorityClass, int]:
        """How many may wait, by class."""
        return self._config.capacity

    def oldest_s(self, now_s: float) -> Mapping[PriorityClass, float]:
        """How long the one that waits longest has waited, by class; left out where none does."""
        came_s: dict[PriorityClass, float] = {}
        for ticket in self._waits:
            known_s = came_s.get(ticket.priority, ticket.arrived_at_s)
            came_s[ticket.priority] = min(known_s, ticket.arrived_at_s)
        return {priority: max(0.0, now_s - at_s) for priority, at_s in came_s.items()}

    @property
    def waiting(self) -> Mapping[ModelId, int]:
        """Requests that wait, by model; zero is left out."""
        return {model: queue.size for model, queue in self._queues.items()}

    def waiting_of(self, model: ModelId, priority: PriorityClass) -> int:
        """Requests of one class that wait for ``model``."""
        queue = self._queues.get(model)
        return 0 if queue is None else queue.sizes[priority]

    def is_idle(self, model: ModelId) -> bool:
        """Whether nothing of it runs."""
        return model not in self._running

    def arrive(self, ticket: Ticket, *, ready: bool) -> Verdict:
        """A request has come; ``ready``: its model could serve it now."""
        model, now_s = ticket.model, ticket.arrived_at_s
        if ready and model not in self._queues and self.has_slot(model, now_s):
            self._keep_place(ticket)
            self._start_running(model)
            return Verdict.GO
        if not self._may_wait(ticket):
            return Verdict.FULL
        self._keep_place(ticket)
        self._push(ticket)
        return Verdict.WAIT

    def release(self, model: ModelId, now_s: float) -> tuple[Ticket, ...]:
        """Those who may go now that the model is ready, in their order, as slots allow."""
        queue = self._queues.get(model)
        released = []
        while queue is not None and queue.size and self.has_slot(model, now_s):
            ticket = self._pop(queue, now_s)
            self._departures[ticket.priority].append(now_s)
            self._start_running(model)
            released.append(ticket)
            if not queue.size:
                del self._queues[model]
        return tuple(released)

    def next_class(self, model: ModelId, now_s: float) -> PriorityClass | None:
        """The class of the request that a free slot of ``model`` would go to."""
        queue = self._queues.get(model)
        return None if queue is None else self._next(queue, now_s)

    def leave(self, ticket: Ticket) -> None:
        """One that waited gives up; nothing happens if it no longer waits."""
        if ticket not in self._waits:
            return
        queue = self._queues[ticket.model]
        queue.gone.add(ticket)
        self._uncount(queue, ticket)
        self._forget(ticket)
        if not queue.size:
            del self._queues[ticket.model]

    def end(self, ticket: Ticket, service_s: float | None = None) -> None:
        """One that was let go has ended; ``service_s``: it ran so long."""
        self._stop_running(ticket)
        self._forget(ticket)
        if service_s is not None:
            self._learn_service(ticket.model, service_s)

    def put_back(self, ticket: Ticket) -> None:
        """One that was let go was not served after all: it waits again, at its old place."""
        self._stop_running(ticket)
        self._push(ticket)

    def resume(self, ticket: Ticket) -> None:
        """One that had ended for us, such as a silent websocket, runs again."""
        self._keep_place(ticket)
        self._start_running(ticket.model)

    def freed_by(self, model: ModelId) -> tuple[ModelId, ...]:
        """Models whose requests may go when one of ``model`` has ended, the most due first."""
        if not self.shares.is_bounded(model):
            return (model,)
        group = self.shares.group(model)
        members = [name for name in self._queues if self.shares.group(name) == group]
        heads = {name: self._first_place(name) for name in members}
        return tuple(sorted(members, key=lambda name: heads[name])) or (model,)

    def has_slot(self, model: ModelId, now_s: float) -> bool:
        """Whether one more may run beside those that do."""
        if self.shares.are_on and not self.shares.may_run(model):
            return False
        limit = self.slots.limit(model, now_s)
        if limit is None:
            return True
        return self._running[model] < limit and not self.slots.pause_s(model, now_s)

    def model_standing_s(self, model: ModelId, load_s: float) -> float:
        """Where a model stands among those that must be loaded, which takes ``load_s``.

        The smallest is loaded first; one that nobody waits for any more stands last.
        """
        queue = self._queues.get(model)
        if queue is None:
            return math.inf
        service_s = self._services_s.get(model, _UNMEASURED_SERVICE_S)
        return model_standing_s(
            self._config.weights,
            min(heap[0][0] for heap in self._heads(queue).values()),
            latency_s=load_s + service_s,
            efficiency=efficiency(queue.size, service_s, load_s),
        )

    def service_s(self, model: ModelId) -> float | None:
        """How long its requests run, on a moving average; None: not measured."""
        return self._services_s.get(model)

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

    # Order

    def _next(self, queue: _Queue, now_s: float) -> PriorityClass:
        """The class that is next. The highest that waits, unless another one is older."""
        heads = self._heads(queue)
        highest = min(heads, key=_rank)
        if queue.aged_went:
            return highest
        came_s = {priority: heap[0][2].arrived_at_s for priority, heap in heads.items()}
        overdue = [
            priority
            for priority, at_s in came_s.items()
            if now_s - at_s >= self._config.longest_wait_s
        ]
        if overdue:
            return min(overdue, key=lambda priority: came_s[priority])
        return min(heads, key=lambda priority: heads[priority][0][:2])

    def _pop(self, queue: _Queue, now_s: float) -> Ticket:
        chosen = self._next(queue, now_s)
        heads = self._heads(queue)
        queue.aged_went = chosen is not min(heads, key=_rank)
        _, _, ticket = heapq.heappop(heads[chosen])
        self._uncount(queue, ticket)
        return ticket

    def _heads(self, queue: _Queue) -> dict[PriorityClass, list[_Place]]:
        """The heaps that hold somebody; those who left are taken out when they come up."""
        for heap in queue.heaps.values():
            while heap and heap[0][2] in queue.gone:
                queue.gone.discard(heapq.heappop(heap)[2])
        return {priority: heap for priority, heap in queue.heaps.items() if heap}

    def _first_place(self, model: ModelId) -> tuple[float, int]:
        return min(heap[0][:2] for heap in self._heads(self._queues[model]).values())

    # Accounts

    def _may_wait(self, ticket: Ticket) -> bool:
        queued = self._queued[ticket.priority]
        capacity = self.places(ticket.priority, self._config.capacity.get(ticket.priority, 0))
        if queued >= capacity or not self.shares.are_on:
            return queued < capacity
        return self.shares.may_wait(ticket.model, ticket.priority, capacity=capacity, queued=queued)

    def _start_running(self, model: ModelId) -> None:
        self._running[model] += 1
        if self.shares.are_on:
            self.shares.begin(model)

    def _keep_place(self, ticket: Ticket) -> None:
        stands_s = standing_s(
            self._config.weights,
            ticket.priority,
            arrived_at_s=ticket.arrived_at_s,
            others=self._by_client[ticket.client] if ticket.client else 0,
            user_weight=ticket.user_weight,
        )
        self._places[ticket] = (stands_s, next(self._order))
        if ticket.client:
            self._by_client[ticket.client] += 1

    def _push(self, ticket: Ticket) -> None:
        queue = self._queues.setdefault(ticket.model, _Queue())
        stands_s, number = self._places[ticket]
        heapq.heappush(queue.heaps[ticket.priority], (stands_s, number, ticket))
        queue.sizes[ticket.priority] += 1
        self._queued[ticket.priority] += 1
        self._waits.add(ticket)
        if self.shares.are_on:
            ticket.waits_as = self.shares.queue(ticket.model, ticket.priority)

    def _uncount(self, queue: _Queue, ticket: Ticket) -> None:
        queue.sizes[ticket.priority] -= 1
        self._queued[ticket.priority] -= 1
        self._waits.discard(ticket)
        if ticket.waits_as is not None:
            self.shares.unqueue(ticket.waits_as, ticket.priority)
            ticket.waits_as = None

    def _stop_running(self, ticket: Ticket) -> None:
        model = ticket.model
        assert self._running[model] > 0
        self._running[model] -= 1
        self.shares.end(model)
        if not self._running[model]:
            del self._running[model]

    def _forget(self, ticket: Ticket) -> None:
        del self._places[ticket]
        if ticket.client:
            self._by_client[ticket.client] -= 1
            if self._by_client[ticket.client] <= 0:
                del self._by_client[ticket.client]

    def _learn_service(self, model: ModelId, service_s: float) -> None:
        known_s = self._services_s.get(model)
        if known_s is None:
            if len(self._services_s) >= _MAX_SERVICES:
                del self._services_s[next(iter(self._services_s))]
            self._services_s[model] = service_s
        else:
            self._services_s[model] = known_s + _SERVICE_SHARE * (service_s - known_s)


def _rank(priority: PriorityClass) -> float:
    return -SERVICE_LEVEL[priority]
