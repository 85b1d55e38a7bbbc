"""One deployment of a size, second after second of virtual time."""

from __future__ import annotations

import gc
import heapq
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from adapters.codec import decode, encode
from cli.scale_parts import (
    REALTIME,
    ControllerPart,
    ControlPart,
    GatewayPart,
    Held,
    PredictorPart,
)
from contracts.config import PlannerConfig
from contracts.events import AnyEvent
from contracts.messages import GatewayBeat, LoadWanted
from simulator.clock import VirtualClock
from simulator.scale_costs import CostBook
from simulator.scale_fleet import Ask, ScaleFleet, ScaleSize

START_S = 1_700_000_000.0
FOLD_AT_ONCE = 500
SCRAPE_S = 15
COLLECT_S = 60
SAMPLE_EVENTS = 20_000
_FIRST, _END = 0, 1

Progress = Callable[[int, int], None]


class SetClock(VirtualClock):
    """A virtual clock that is set from outside; nobody sleeps on it."""

    def set(self, now_s: float) -> None:
        """It is ``now_s``."""
        self._elapsed_s = now_s - self._epoch_s


@dataclass(slots=True)
class Sample:
    """What was written, for a real server to be filled with."""

    events: list[bytes] = field(default_factory=list)
    forecasts: list[bytes] = field(default_factory=list)
    beats: list[GatewayBeat] = field(default_factory=list)
    world: bytes = b""
    table: bytes = b""


class ScaleRun:
    """Plays ``size`` and keeps what it cost.

    Parameters
    ----------
    warm_up : int
        Virtual seconds at the beginning that are played and not counted.
    """

    def __init__(self, size: ScaleSize, *, seed: int, warm_up: int) -> None:
        config = PlannerConfig()
        self.size = size
        self.costs = CostBook(time.thread_time)
        self.sample = Sample()
        self.seconds = 0
        self.requests = 0
        self.events = 0
        self.tables = 0
        self.waited = 0
        self._warm_up = warm_up
        self._clock = SetClock(START_S)
        self.fleet = ScaleFleet(
            size, seed=seed, start_s=START_S, reserve_ratio=config.reserve_ratio
        )
        self._gateway = GatewayPart(self.costs, self._clock, size.gateways)
        self._controller = ControllerPart(self.costs, self.fleet.world(), config)
        self._predictor = PredictorPart(self.costs, size.models)
        self._control = ControlPart(self.costs, self._clock)
        self._order = itertools.count()
        self._due: list[tuple[float, int, int, Held]] = []
        self._wanted: list[LoadWanted] = []
        self._ordered: list[AnyEvent] = []

    def play(self, seconds: int, progress: Progress = lambda _done, _all: None) -> None:
        """``seconds`` after the warm-up; ``progress`` is told of each."""
        first = self._controller.table()
        assert first is not None
        self._gateway.take_table(first)
        # All parts are one process here: looking for garbage would charge one for the others'.
        gc.disable()
        try:
            for second in range(self._warm_up + seconds):
                if second == self._warm_up:
                    self._forget()
                self._second(START_S + second, second)
                progress(second + 1, self._warm_up + seconds)
                if second % COLLECT_S == 0:
                    gc.collect()
        finally:
            gc.enable()
        self.seconds = seconds

    def _forget(self) -> None:
        self.costs.costs.clear()
        self.costs.sizes.clear()
        self.requests = self.events = self.tables = self.waited = 0

    def _second(self, begin_s: float, number: int) -> None:
        self._traffic(begin_s)
        now_s = begin_s + 1.0
        self._clock.set(now_s)
        events, told = self._logged(now_s)
        beats = self._gateway.beats(now_s)
        self._controller.wanted(self._wanted)
        self._controller.hear(beats)
        for first in range(0, len(told), FOLD_AT_ONCE):
            self._controller.take(told[first : first + FOLD_AT_ONCE])
        self._predictor.take(events)
        self._control.take(events)
        forecasts = self._predictor.publish(now_s)
        self._controller.take_forecasts(forecasts)
        self._control.take_forecasts(forecasts)
        actions = self._controller.plan(now_s)
        self._ordered = self.fleet.order(actions, now_s)
        # Its own events the leader folds when it makes them.
        self._controller.take(self._ordered)
        table = self._controller.table()
        for message in self._wanted:
            self._controller.answer(message.model)
        self._wanted = []
        if table is not None:
            self.tables += 1
            self._gateway.take_table(table)
        world = self._controller.bulletin()
        self._control.look(world, table)
        if number % SCRAPE_S == 0:
            self._control.scrape()
        self._release(now_s)
        self._remember(forecasts, beats, world, table)

    def _traffic(self, begin_s: float) -> None:
        """What callers do and see within a second."""
        asks = self.fleet.asks(begin_s, 1.0)
        self.requests += len(asks)
        # Charged as a whole, the heap of what is to come included: a look at the CPU's clock takes
        # longer than one of these steps.
        with self.costs.timed("gateway.request", len(asks)):
            for ask in asks:
                self._until(ask.at_s)
                self._clock.set(ask.at_s)
                self._ask(ask)
            self._until(begin_s + 1.0)

    def _ask(self, ask: Ask) -> None:
        held = self._gateway.receive(ask)
        waiting = self._gateway.waiting.get(ask.model)
        if waiting is None and self._gateway.lets_go(held):
            self._sent(held, ask.at_s)
            return
        held.is_cold = True
        self.waited += 1
        self._gateway.waiting.setdefault(ask.model, []).append(held)
        self._wanted.append(
            LoadWanted(
                gateway=held.source,
                request_id=held.ticket.request_id,
                model=ask.model,
                at_s=ask.at_s,
                deadline_s=60.0,
                priority=REALTIME,
            )
        )

    def _sent(self, held: Held, at_s: float) -> None:
        self.fleet.sent(held.ask.model, by=1)
        for kind, after_s in ((_FIRST, held.ask.first_s), (_END, held.ask.service_s)):
            heapq.heappush(self._due, (at_s + after_s, next(self._order), kind, held))

    def _until(self, at_s: float) -> None:
        due = self._due
        while due and due[0][0] <= at_s:
            then_s, _, kind, held = heapq.heappop(due)
            self._clock.set(then_s)
            if kind == _FIRST:
                self._gateway.first_content(held)
            else:
                self._gateway.ended(held)
                self.fleet.sent(held.ask.model, by=-1)

    def _logged(self, now_s: float) -> tuple[list[AnyEvent], list[AnyEvent]]:
        """What the log has got, and what of it the controller has not folded already."""
        own = self._ordered
        others = [*self._gateway.take_events(), *self.fleet.pass_time(now_s)]
        events = [*own, *others]
        with self.costs.timed("codec.encode", len(events)):
            data = [encode(event) for event in events]
        self.costs.sized("events", sum(map(len, data)))
        with self.costs.timed("codec.decode", len(data)):
            for one in data:
                decode(one)
        self.events += len(events)
        room = SAMPLE_EVENTS - len(self.sample.events)
        self.sample.events.extend(data[:room])
        return events, others

    def _release(self, now_s: float) -> None:
        """Those whose model is resident by now go."""
        waiting = self._gateway.waiting
        for model in list(waiting):
            rest = []
            for held in waiting.pop(model):
                if self._gateway.lets_go(held):
                    self._sent(held, now_s)
                else:
                    rest.append(held)
            if rest:
                waiting[model] = rest

    def _remember(
        self,
        forecasts: list[bytes],
        beats: list[GatewayBeat],
        world: bytes,
        table: bytes | None,
    ) -> None:
        sample = self.sample
        if len(forecasts) >= len(sample.forecasts):
            sample.forecasts = forecasts
        sample.beats, sample.world, sample.table = beats, world, table or sample.table
