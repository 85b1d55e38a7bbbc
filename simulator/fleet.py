"""A fleet of replicas in virtual time: requests come, wait, are served; replicas start and go.

Requests wait in the order in which they came; each goes to the first replica that has a place. A
replica that is to go takes nothing new and goes when its last request has ended, as gateways drain.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from contracts.scaling import Need, Replicas, Scaling, ScalingState, ScalingTarget
from controller.scaling.rule import may_order, refused, rescaled, taken

Expects = Callable[[float], float | None]
"""From a time to the requests at once that are expected a start-up time later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Faults:
    """What goes wrong, as spans of time in seconds (begin, end).

    Attributes
    ----------
    dead : tuple
        The scaler takes no order.
    barren : tuple
        What is ordered then never comes.
    """

    dead: tuple[tuple[float, float], ...] = ()
    barren: tuple[tuple[float, float], ...] = ()


@dataclass(slots=True)
class FleetReport:
    """What came of it.

    Attributes
    ----------
    late : int
        Requests that waited longer than they may.
    replica_s : float
        Seconds of replicas, starting ones included: that is what is paid for.
    said : list of Scaling
        Every answer that ordered something or had another reason than the one before.
    """

    requests: int = 0
    late: int = 0
    longest_wait_s: float = 0.0
    replica_s: float = 0.0
    most: int = 0
    orders: int = 0
    said: list[Scaling] = field(default_factory=list)


class Fleet:
    """Plays one target.

    Parameters
    ----------
    start_s : float
        How long a start really takes.
    patience_s : float
        A request that waits longer is late.
    """

    def __init__(
        self,
        target: ScalingTarget,
        *,
        start_s: float,
        patience_s: float,
        tick_s: float = 10.0,
        ready: int = 1,
        faults: Faults | None = None,
    ) -> None:
        self._target = target
        self._start_s = start_s
        self._patience_s = patience_s
        self._tick_s = tick_s
        self._faults = faults or Faults()
        self._load: dict[int, int] = dict.fromkeys(range(ready), 0)
        self._leaving: set[int] = set()
        self._starting: deque[int] = deque()
        self._names = itertools.count(ready)
        self._wanted = ready
        self._waiting: deque[tuple[float, float]] = deque()
        self._state = ScalingState()
        self._now_s = 0.0
        self._order = itertools.count()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self.report = FleetReport()

    def play(
        self, arrivals: Sequence[tuple[float, float]], expects: Expects, *, until_s: float
    ) -> FleetReport:
        """Serve ``arrivals`` (time, seconds of service), oldest first, and look every tick."""
        for at_s, service_s in arrivals:
            self._at(at_s, partial(self._arrive, at_s, service_s))
        self._tick(expects, until_s)
        while self._due and self._due[0][0] < until_s:
            at_s, _, act = heapq.heappop(self._due)
            self._pass(at_s)
            act()
        self._pass(until_s)
        self.report.late += sum(until_s - at_s > self._patience_s for at_s, _ in self._waiting)
        return self.report

    def _at(self, at_s: float, act: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), act))

    def _pass(self, at_s: float) -> None:
        self.report.replica_s += (at_s - self._now_s) * (len(self._load) + len(self._starting))
        self._now_s = at_s

    def _arrive(self, at_s: float, service_s: float) -> None:
        self.report.requests += 1
        self._waiting.append((at_s, service_s))
        self._serve()

    def _serve(self) -> None:
        for name in sorted(self._load):
            while self._waiting and name not in self._leaving and self._load[name] < self._capacity:
                at_s, service_s = self._waiting.popleft()
                waited_s = self._now_s - at_s
                self.report.longest_wait_s = max(self.report.longest_wait_s, waited_s)
                self.report.late += waited_s > self._patience_s
                self._load[name] += 1
                self._at(self._now_s + service_s, partial(self._end, name))

    @property
    def _capacity(self) -> int:
        return int(self._target.capacity)

    def _end(self, name: int) -> None:
        self._load[name] -= 1
        self._let_go()
        self._serve()

    def _let_go(self) -> None:
        for name in [name for name in self._leaving if self._load[name] == 0]:
            self._leaving.remove(name)
            del self._load[name]

    def _tick(self, expects: Expects, until_s: float) -> None:
        serving = [name for name in self._load if name not in self._leaving]
        need = Need(
            in_flight=sum(self._load.values()),
            waiting=len(self._waiting),
            expected=expects(self._now_s),
        )
        replicas = Replicas(ready=len(serving), wanted=self._wanted)
        scaling, state = rescaled(self._target, replicas, need, self._state, self._now_s)
        if scaling.changed and may_order(state, self._now_s):
            if _within(self._faults.dead, self._now_s):
                state = refused(state, self._now_s)
            else:
                self.report.orders += 1
                self._scale(scaling.replicas)
                state = taken(state, scaling.replicas)
        self._state = state
        said = self.report.said
        if scaling.changed or not said or said[-1].reason is not scaling.reason:
            said.append(scaling)
        self.report.most = max(self.report.most, len(self._load))
        if self._now_s + self._tick_s < until_s:
            self._at(self._now_s + self._tick_s, partial(self._tick, expects, until_s))

    def _scale(self, wanted: int) -> None:
        self._wanted = wanted
        serving = [name for name in self._load if name not in self._leaving]
        missing = wanted - len(serving) - len(self._starting)
        for _ in range(missing):
            name = next(self._names)
            self._starting.append(name)
            if not _within(self._faults.barren, self._now_s):
                self._at(self._now_s + self._start_s, partial(self._come, name))
        for _ in range(-missing):
            if self._starting:
                self._starting.pop()
            else:
                # The least busy goes, as Kubernetes and compose leave to the one who drains.
                leaving = min(serving, key=lambda name: (self._load[name], -name))
                serving.remove(leaving)
                self._leaving.add(leaving)
        self._let_go()

    def _come(self, name: int) -> None:
        if name in self._starting:
            self._starting.remove(name)
            self._load[name] = 0
            self._serve()


def _within(spans: tuple[tuple[float, float], ...], at_s: float) -> bool:
    return any(begin_s <= at_s < end_s for begin_s, end_s in spans)
