"""Whose work is put off for a realtime request, and how often that may happen to anybody. Pure.

Realtime work is never cancelled. A batch or background request of a caller may be cancelled
until the first byte of its answer has gone out; one that says ``X-Headstart-Preempt: anytime``
(our own workers do, since they put the job back) at any time. The one that lost least so far
goes: of the lowest class, and of those the one that was sent last.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from api.gateway.admission import Ticket
from api.gateway.priority import SERVICE_LEVEL
from contracts.events import PriorityClass
from contracts.ids import ModelId

PREEMPT_AFTER_S = 1.0
"""So long a realtime request waits for a slot to get free by itself before work is cancelled
for it: most requests end in that time, and what is cancelled has to be done again."""

WINDOW_S = 600.0
"""A client that was preempted as often as may be is left alone for so long."""

MAX_KEYS = 10_000


@dataclass(slots=True, kw_only=True, eq=False)
class Yielding:
    """A request that runs and may have to yield.

    Attributes
    ----------
    key : str
        Who it is, over several tries: its own id where it sent one, else its client.
    anytime : bool
        It may be cancelled after its first byte too.
    has_begun : bool
        The first byte of its answer has gone out.
    is_preempted : bool
        It has been told to end.
    """

    ticket: Ticket
    key: str
    since_s: float
    cancel: Callable[[], None]
    anytime: bool = False
    has_begun: bool = False
    is_preempted: bool = False


class PreemptionBook:
    """How often whom.

    Parameters
    ----------
    most : int
        Preemptions of one key within ``WINDOW_S``.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._times: OrderedDict[str, deque[float]] = OrderedDict()

    def configure(self, most: int) -> None:
        """The configuration has changed."""
        self._most = most

    def may_preempt(self, request: Yielding, now_s: float) -> bool:
        """Whether it may be told to end."""
        if request.is_preempted or request.ticket.priority is PriorityClass.REALTIME:
            return False
        if request.has_begun and not request.anytime:
            return False
        times = self._times.get(request.key, ())
        return sum(now_s - at_s < WINDOW_S for at_s in times) < self._most

    def choose(self, requests: Iterable[Yielding], now_s: float) -> Yielding | None:
        """Who has to go; None: nobody may be told to."""
        able = [request for request in requests if self.may_preempt(request, now_s)]
        return min(
            able,
            key=lambda request: (SERVICE_LEVEL[request.ticket.priority], -request.since_s),
            default=None,
        )

    def note(self, request: Yielding, now_s: float) -> None:
        """It was told to end."""
        request.is_preempted = True
        times = self._times.setdefault(request.key, deque(maxlen=max(1, self._most)))
        times.append(now_s)
        self._times.move_to_end(request.key)
        if len(self._times) > MAX_KEYS:
            self._times.popitem(last=False)


class YieldingRequests:
    """Those that run now, by model. Realtime requests never come in here."""

    def __init__(self, book: PreemptionBook) -> None:
        self.book = book
        self._running: dict[ModelId, list[Yielding]] = {}

    def add(self, request: Yielding) -> None:
        """It runs from now on."""
        self._running.setdefault(request.ticket.model, []).append(request)

    def remove(self, request: Yielding) -> None:
        """It has ended."""
        model = request.ticket.model
        self._running[model].remove(request)
        if not self._running[model]:
            del self._running[model]

    def counts(self, now_s: float) -> Mapping[ModelId, int]:
        """Those that may be told to end, or were and have not ended yet; zero is left out."""
        counts = {
            model: sum(
                request.is_preempted or self.book.may_preempt(request, now_s)
                for request in requests
            )
            for model, requests in self._running.items()
        }
        return {model: count for model, count in counts.items() if count}

    def free_slots(self, model: ModelId, wanted: int, now_s: float) -> int:
        """Tell as many to end as it takes for ``wanted`` slots to get free; how many were told."""
        requests = self._running.get(model, [])
        told = 0
        while sum(request.is_preempted for request in requests) < wanted:
            chosen = self.book.choose(requests, now_s)
            if chosen is None:
                break
            self._tell(chosen, now_s)
            told += 1
        return told

    def clear(self, model: ModelId, now_s: float) -> int:
        """Tell all of ``model`` to end that may be told; how many were."""
        able = [r for r in self._running.get(model, []) if self.book.may_preempt(r, now_s)]
        for request in able:
            self._tell(request, now_s)
        return len(able)

    def _tell(self, request: Yielding, now_s: float) -> None:
        self.book.note(request, now_s)
        request.cancel()
