"""A controller on a machine where anything goes wrong with memory, in any order.

Unloads that lie, hang or fail, loads that find too little memory, another program that takes
four gigabytes, LocalAI's restarts and its own evictions. Whatever comes: no order of ours
exceeds the memory that was there to be seen, no busy model is unloaded, and in the end everybody
is served.
"""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import structlog
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from contracts.ids import ModelId
from contracts.memory import PlaceId
from contracts.messages import GatewayBeat
from contracts.world import Residency
from simulator.memory_machine import MemoryMachine
from tests import worlds
from tests.controller_stage import GATEWAY, A, B, C, Stage

GIB = 1024**3
CARD = PlaceId("GPU-0")
D = ModelId("d")
MODELS = (A, B, C, D)
SIZES = {A: 10 * GIB, B: 8 * GIB, C: 3 * GIB, D: 9 * GIB}
LIES_ABOUT_ITS_SIZE = D
POLL_S = 5.0

models = st.sampled_from(MODELS)


class Watched(MemoryMachine):
    """Says when a model is stopped that serves somebody."""

    stopped_busy: list[ModelId]

    async def unload(self, model: ModelId) -> None:
        if model in self.busy and model in self.resident:
            self.stopped_busy.append(model)
        await super().unload(model)


class MemoryAnyOrder(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.waiting: Counter[ModelId] = Counter()
        self.in_flight: Counter[ModelId] = Counter()
        self.served: Counter[ModelId] = Counter()
        self.requests = (f"r{number}" for number in itertools.count())
        self.held: dict[ModelId, list[str]] = {name: [] for name in MODELS}
        self.running: dict[ModelId, list[str]] = {name: [] for name in MODELS}
        self.unseen_change_s = float("-inf")
        structlog.configure(processors=[lambda _logger, _name, _event: _drop()])

    def do(self, work):
        return self.loop.run_until_complete(work)

    @initialize()
    def begin(self) -> None:
        async def start() -> None:
            self.stage = Stage(reserve_ratio=0.2, turn_s=15.0)
            self.machine = Watched(
                self.stage.clock,
                dict.fromkeys(MODELS, 3.0),
                splits={name: {CARD: size} for name, size in SIZES.items()},
                cards={CARD: 24 * GIB},
                estimates=SIZES | {LIES_ABOUT_ITS_SIZE: 2 * GIB},
            )
            self.machine.stopped_busy = []
            self.stage.server = self.machine
            await self.stage.start()

        self.do(start())
        self.do(self.live(6.0))

    # What happens

    @rule(model=models)
    def somebody_asks(self, model: ModelId) -> None:
        self.do(self.ask(model))
        self.do(self.live(1.0))

    @rule(seconds=st.sampled_from([1.0, 4.0, 12.0]))
    def time_passes(self, seconds: float) -> None:
        self.do(self.live(seconds))

    @rule(model=models)
    def answers_end(self, model: ModelId) -> None:
        self.do(self.end(model))

    @rule(model=models, fault=st.sampled_from(["lying", "hanging", "refusing"]))
    def an_unload_will_go_wrong(self, model: ModelId, fault: str) -> None:
        getattr(self.machine, fault).add(model)

    @rule()
    def unloads_go_well_again(self) -> None:
        self.heal()

    @rule(taken=st.sampled_from([0, 4 * GIB]))
    def another_program_takes_memory(self, taken: int) -> None:
        if taken <= self.machine.free(CARD) or not taken:
            self.machine.others[CARD] = taken
            self.unseen_change_s = self.stage.now_s
            self.do(self.live(0.5))

    @rule(orphans=st.booleans())
    def localai_begins_anew(self, *, orphans: bool) -> None:
        """Killed hard, it leaves processes behind that hold memory and that it does not know."""
        for name in MODELS:
            self.do(self.end(name))
        if orphans:
            left = {name: self.machine.splits[name] for name in self.machine.resident}
            self.machine.kept.update(left)
        self.machine.restart()
        self.do(self.live(1.0))

    @rule(model=models)
    def localai_evicts_by_itself(self, model: ModelId) -> None:
        if model in self.machine.resident and not self.in_flight[model]:
            self.machine.evict(model)
            self.do(self.live(1.0))

    # What must hold

    @invariant()
    def no_busy_model_is_unloaded(self) -> None:
        assert self.machine.stopped_busy == []

    @invariant()
    def no_order_exceeds_what_was_there_to_be_seen(self) -> None:
        for one in self.machine.overcommits:
            is_wrong = one.model == LIES_ABOUT_ITS_SIZE
            was_seen = one.at_s > self.unseen_change_s + POLL_S + 1.0
            assert is_wrong or not was_seen, one
        self.machine.overcommits.clear()

    def teardown(self) -> None:
        try:
            self.do(self.finish())
        finally:
            self.do(self.stage.close())
            self.loop.close()
            structlog.reset_defaults()

    async def finish(self) -> None:
        """All is well again: whoever waits, and one more for each model, is served."""
        self.heal()
        self.machine.others.clear()
        for name in MODELS:
            await self.end(name)
        for name in MODELS:
            before = self.served[name]
            await self.ask(name)
            for _ in range(90):
                await self.live(5.0)
                for other in MODELS:
                    await self.end(other)
                if self.served[name] > before and not self.waiting[name]:
                    break
            assert self.served[name] > before, f"{name} is never served"
        assert self.machine.stopped_busy == []

    def heal(self) -> None:
        for faults in (self.machine.lying, self.machine.hanging, self.machine.refusing):
            faults.clear()
        self.machine.kept.clear()

    # The gateway

    async def ask(self, model: ModelId) -> None:
        request = next(self.requests)
        self.held[model].append(request)
        self.waiting[model] += 1
        await self.stage.log(self.stage.received(request, model))
        await self.stage.want(model, request)

    async def end(self, model: ModelId) -> None:
        for request in self.running[model]:
            await self.stage.log(worlds.completed(request, model, self.stage.now_s))
            self.served[model] += 1
        self.running[model].clear()
        self.in_flight[model] = 0
        self.machine.busy.discard(model)

    async def live(self, seconds: float) -> None:
        """Beats, as a gateway sends them: what is resident takes its requests, drains are heard."""
        end_s = self.stage.now_s + seconds
        while self.stage.now_s < end_s:
            table = await self.stage.snapshots.routing()
            draining = {} if table is None else table.draining
            for name in MODELS:
                route = None if table is None else table.models.get(name)
                is_hot = route is not None and route.residency is Residency.HOT
                if is_hot and name not in draining and self.held[name]:
                    await self.dispatch(name)
            await self.stage.to_controller.send(
                GatewayBeat(
                    gateway=GATEWAY,
                    at_s=self.stage.now_s,
                    drains=tuple(draining.values()),
                    waiting=+self.waiting,
                    in_flight=+self.in_flight,
                )
            )
            await self.stage.clock.advance(0.5)

    async def dispatch(self, model: ModelId) -> None:
        if model not in self.machine.resident:
            return  # the table is older than what LocalAI did; the request waits on
        for request in self.held[model]:
            await self.stage.log(self.stage.dispatched(request, model, cold=True))
        self.running[model].extend(self.held[model])
        self.in_flight[model] += len(self.held[model])
        self.waiting[model] = 0
        self.held[model].clear()
        self.machine.busy.add(model)


def _drop() -> str:
    raise structlog.DropEvent


TestMemoryAnyOrder = MemoryAnyOrder.TestCase
TestMemoryAnyOrder.settings = settings(
    max_examples=15,
    stateful_step_count=14,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
