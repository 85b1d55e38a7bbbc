"""Whatever is asked in whatever order, the accounts stay right and nobody is forgotten."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from contracts.world import Residency
from simulator.cluster import Cluster, ModelSpec
from simulator.localai import LocalAi
from simulator.localai_effects import Done, Effect, Record, RecordKind, Refused, Started
from simulator.localai_state import LocalAiConfig, ModelFaults, cooldown_s

MODELS = ("a", "b", "c", "d")
NAMES = st.sampled_from((*MODELS, "unknown"))


class AnyOrder(RuleBasedStateMachine):
    """Drives one instance as callers would, late and early, and checks it after each step."""

    @initialize(
        capacity_bytes=st.one_of(st.none(), st.integers(0, 60)),
        model_limit=st.one_of(st.none(), st.integers(1, 3)),
        idle_s=st.one_of(st.none(), st.just(20.0)),
        parallel=st.integers(1, 3),
        exact=st.booleans(),
    )
    def begin(self, capacity_bytes, model_limit, idle_s, parallel, exact):
        specs = [
            ModelSpec(name=name, footprint_bytes=10 + index, load_s=1.0 + index, parallel=parallel)
            for index, name in enumerate(MODELS)
        ]
        self.cluster: Cluster[int] = Cluster(specs, capacity_bytes=capacity_bytes)
        config = LocalAiConfig(model_limit=model_limit, watchdog_idle_s=idle_s)
        self.machine = LocalAi(self.cluster, config.exact() if exact else config)
        self.now_s = 0.0
        self.callers = 0
        self.waiting: set[int] = set()
        self.started: set[int] = set()
        self.left: set[int] = set()
        self.loads_open: dict[str, int] = {}
        self.last_record_s = 0.0

    def take(self, effects: tuple[Effect, ...]) -> None:
        for effect in effects:
            if isinstance(effect, Record):
                self.record(effect)
                continue
            assert effect.caller not in self.left, "an answer to somebody who left"
            if isinstance(effect, Started):
                assert effect.caller in self.waiting
                self.waiting.remove(effect.caller)
                self.started.add(effect.caller)
            elif isinstance(effect, Done | Refused):
                assert effect.caller in self.waiting | self.started, "answered twice"
                self.waiting.discard(effect.caller)
                self.started.discard(effect.caller)

    def record(self, record: Record) -> None:
        assert record.at_s <= self.now_s
        if record.kind is RecordKind.LOAD_STARTED:
            assert self.loads_open.get(record.model, 0) == 0, "two loads of one model"
            self.loads_open[record.model] = 1
        elif record.kind in (
            RecordKind.LOAD_ENDED, RecordKind.LOAD_FAILED, RecordKind.LOAD_CANCELLED,
        ):  # fmt: skip
            assert self.loads_open.get(record.model) == 1, "a load ended that never began"
            self.loads_open[record.model] = 0

    def new_caller(self) -> int:
        self.callers += 1
        self.waiting.add(self.callers)
        return self.callers

    @rule(model=NAMES)
    def infer(self, model):
        self.take(self.machine.infer(self.new_caller(), model, self.now_s))

    @rule(model=NAMES)
    def load(self, model):
        self.take(self.machine.load(self.new_caller(), model, self.now_s))

    @rule(model=NAMES)
    def monitor(self, model):
        self.take(self.machine.monitor(self.new_caller(), model, self.now_s))

    @rule(model=NAMES)
    def stop(self, model):
        self.take(self.machine.stop(self.new_caller(), model, self.now_s))

    @rule(model=st.sampled_from(MODELS))
    def crash(self, model):
        self.take(self.machine.crash(model, self.now_s))

    @rule(model=st.sampled_from(MODELS), pinned=st.booleans())
    def pin(self, model, pinned):
        self.machine.set_pinned(model, pinned=pinned)

    @rule(model=st.sampled_from(MODELS), failures=st.integers(0, 2), lies=st.booleans())
    def break_something(self, model, failures, lies):
        self.machine.set_faults(model, ModelFaults(load_failures=failures, unload_lies=lies))

    @rule(limit=st.one_of(st.none(), st.integers(1, 3)))
    def change_limit(self, limit):
        self.machine.model_limit = limit

    @precondition(lambda self: self.started)
    @rule(pick=st.randoms(use_true_random=False))
    def finish(self, pick):
        caller = pick.choice(sorted(self.started))
        effects = self.machine.finish(caller, self.now_s)
        self.started.remove(caller)
        self.take(effects)

    @precondition(lambda self: self.waiting | self.started)
    @rule(pick=st.randoms(use_true_random=False))
    def leave(self, pick):
        caller = pick.choice(sorted(self.waiting | self.started))
        effects = self.machine.leave(caller, self.now_s)
        self.waiting.discard(caller)
        self.started.discard(caller)
        self.left.add(caller)
        self.take(effects)

    @rule(later_s=st.floats(0.0, 40.0))
    def wait(self, later_s):
        until_s = self.now_s + later_s
        while (wake_s := self.machine.next_wake_s()) is not None and wake_s <= until_s:
            # What a changed setting makes due may lie in the past.
            self.now_s = max(self.now_s, wake_s)
            self.take(self.machine.advance(self.now_s))
        self.now_s = until_s

    @rule(later_s=st.floats(0.0, 40.0))
    def sleep_through(self, later_s):
        self.now_s += later_s
        self.take(self.machine.advance(self.now_s))

    @invariant()
    def memory_is_that_of_hot_and_loading_models(self):
        if not hasattr(self, "cluster"):
            return
        held = [m for m in MODELS if self.cluster.residency(m) is not Residency.COLD]
        assert self.cluster.used_bytes == sum(self.cluster.spec(m).footprint_bytes for m in held)
        assert self.cluster.used_bytes >= 0
        free_bytes = self.cluster.free_bytes
        assert free_bytes is None or free_bytes >= 0
        if self.cluster.capacity_bytes is not None:
            assert self.cluster.used_bytes <= self.cluster.capacity_bytes

    @invariant()
    def a_model_is_in_one_state_and_within_its_slots(self):
        if not hasattr(self, "cluster"):
            return
        for model in MODELS:
            hot, loading = model in self.cluster.resident(), model in self.cluster.loading()
            assert not (hot and loading)
            assert not (hot and self.machine.is_ghost(model))
            assert (self.cluster.residency(model) is Residency.HOT) == hot
            assert 0 <= self.cluster.in_flight(model) <= self.cluster.spec(model).parallel
            if not hot:
                assert self.cluster.in_flight(model) == 0
            waiting = self.cluster.waiting(model)
            if hot and waiting:
                assert self.cluster.in_flight(model) == self.cluster.spec(model).parallel

    @invariant()
    def nobody_who_waits_is_forgotten(self):
        if not hasattr(self, "cluster"):
            return
        if self.waiting and self.machine.next_wake_s() is None:
            # Only a slot that is taken can be what they wait for.
            assert self.started

    def teardown(self):
        """Everybody who runs finishes; then all who wait are answered in the end."""
        if not hasattr(self, "cluster"):
            return
        for _ in range(1000):
            if not self.waiting and not self.started:
                break
            for caller in sorted(self.started):
                effects = self.machine.finish(caller, self.now_s)
                self.started.discard(caller)
                self.take(effects)
            self.wait(30.0)
        assert not self.waiting
        self.wait(600.0)  # loads that everybody left end by themselves
        assert all(count == 0 for count in self.loads_open.values())


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(stateful_step_count=30)


@given(st.integers(1, 10_000))
def test_a_cool_down_is_never_shorter_after_one_more_failure(failures):
    assert 10.0 <= cooldown_s(failures) <= cooldown_s(failures + 1) <= 300.0
