"""Groups, schedules and the warm tier keep their promises, whatever the world is."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.group_shares import GroupShares
from api.gateway.slots import SlotBook
from contracts.config import PlannerConfig, QueueConfig, WarmConfig
from contracts.events import LoadCause, PriorityClass
from contracts.groups import GroupConfig
from contracts.ids import ModelId, RequestId
from contracts.plan import LoadModel, PlannerState, PlanResult, UnloadModel, WarmFile
from contracts.world import (
    OCCUPIES_MEMORY,
    HostMemory,
    Residency,
    ScheduledUse,
    Warmth,
    WorldSnapshot,
)
from controller.planner import plan
from controller.policies.registry import POLICIES
from controller.precedence import FRESH_S, is_due, last_used_s
from tests.worlds import MIB, NODE, curve, model, world

NOW_S = 1000.0
NAMES = [ModelId(f"m{number}") for number in range(6)]
GROUPS = ("early", "late", "")
moments = st.floats(0.0, NOW_S)


@st.composite
def statuses(draw, name):
    residency = draw(st.sampled_from([Residency.COLD, Residency.HOT, Residency.LOADING]))
    waiting = draw(st.integers(0, 1))
    return model(
        name,
        residency,
        mb=draw(st.integers(1, 12)),
        since_s=draw(moments),
        used_s=draw(st.none() | moments),
        in_flight=draw(st.integers(0, 1)) if residency is Residency.HOT else 0,
        waiting=waiting,
        wanted_since_s=draw(moments) if waiting else None,
        arrivals=draw(st.integers(0, 5)),
        group=draw(st.sampled_from(GROUPS)),
        load_cause=draw(st.none() | st.sampled_from(LoadCause)),
    )


@st.composite
def situations(draw):
    names = draw(st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    some = st.sets(st.sampled_from(names), max_size=3)
    w = world(
        *(draw(statuses(name)) for name in names),
        mb=draw(st.integers(5, 60)),
        now_s=NOW_S,
        scheduled={
            name: ScheduledUse(starts_at_s=draw(st.floats(900, 1100)), ends_at_s=1200.0)
            for name in draw(some)
        },
        warmth={
            name: Warmth(
                model=name,
                weights_bytes=draw(st.integers(1, 20)) * MIB,
                cached_bytes=draw(st.none() | st.integers(0, 5).map(lambda mb: mb * MIB)),
                is_warming=draw(st.booleans()) and draw(st.booleans()),
            )
            for name in draw(some)
        },
        hosts={
            NODE: HostMemory(total_bytes=100 * MIB, available_bytes=draw(st.integers(0, 100)) * MIB)
        },
    )
    limits = st.none() | st.integers(1, 25).map(lambda mb: mb * MIB)
    groups = {
        name: GroupConfig(
            name=name,
            memory_bytes=draw(limits),
            precedence=place,
            gpus=draw(st.none() | st.just(0.5)),
        )
        for place, name in enumerate(GROUPS[:2])
    }
    config = PlannerConfig(
        policy=draw(st.sampled_from(sorted(POLICIES))),
        parallel_loads=draw(st.integers(1, 3)),
        reserve_ratio=0.0,
        groups=groups,
        warm=WarmConfig(
            strategy=draw(st.sampled_from(["adaptive", "lru", "lfu", "fifo"])),
            budget_bytes=draw(st.none() | st.integers(1, 40).map(lambda mb: mb * MIB)),
            keep_free_bytes=draw(st.integers(0, 50)) * MIB,
        ),
    )
    told = {
        n: curve(n, {20.0: draw(st.floats(0, 4))}, made_s=NOW_S, expires_s=1100.0) for n in names
    }
    return w, config, plan(world=w, forecasts=told, state=PlannerState(), config=config)


def loads(result: PlanResult) -> list[LoadModel]:
    return [action for action in result.plan.actions if isinstance(action, LoadModel)]


def limit_of(w: WorldSnapshot, group: GroupConfig) -> int | None:
    total = w.nodes[NODE].memory_total_bytes or 0
    bounds = [group.memory_bytes, total // 2 if group.gpus else None]
    return min((bound for bound in bounds if bound is not None), default=None)


@given(situations())
def test_loads_never_take_a_group_beyond_its_limit(situation):
    w, config, result = situation
    gone = {a.model for a in result.plan.actions if isinstance(a, UnloadModel)}
    for name, group in config.groups.items():
        ours = [action for action in loads(result) if w.models[action.model].group == name]
        limit = limit_of(w, group)
        if not ours or limit is None:
            continue
        stays = sum(
            status.occupied_bytes
            for status in w.models.values()
            if status.group == name
            and status.residency in OCCUPIES_MEMORY
            and status.model not in gone
        )
        comes = sum(w.models[action.model].needed_bytes for action in ours)
        assert stays + comes <= limit


@given(situations())
def test_what_a_schedule_wants_goes_for_no_prefetch_and_fresh_models_for_no_schedule(situation):
    w, config, result = situation
    for action in loads(result):
        victims = [w.models[name] for name in action.after]
        if action.cause is LoadCause.PREFETCH:
            own = w.models[action.model]
            rank = {name: group.precedence for name, group in config.groups.items()}
            assert not any(is_due(w, victim) for victim in victims)
            assert all(rank.get(v.group, 1) >= rank.get(own.group, 1) for v in victims)
        if action.cause is LoadCause.SCHEDULE:
            assert is_due(w, w.models[action.model])
            assert all(last_used_s(victim) <= NOW_S - FRESH_S for victim in victims)


@given(situations())
def test_files_are_read_one_at_a_time_beside_no_load_and_within_all_bounds(situation):
    w, config, result = situation
    warming = [action for action in result.plan.actions if isinstance(action, WarmFile)]
    if not warming:
        return
    (action,) = warming
    assert not loads(result)
    assert not any(status.residency is Residency.LOADING for status in w.models.values())
    host, warm = w.hosts[NODE], config.warm
    assert warm is not None
    kept = sum(
        w.warmth[name].cached_bytes or 0
        for name, status in w.models.items()
        if name in w.warmth
        and status.residency is Residency.COLD
        and name not in (action.model, *action.instead_of)
    )
    after = kept + w.warmth[action.model].weights_bytes
    assert after <= (host.total_bytes // 2 if warm.budget_bytes is None else warm.budget_bytes)
    assert host.available_bytes - after >= warm.keep_free_bytes


class SharedGate(RuleBasedStateMachine):
    """Admission with groups: requests come, go, give up and are put back, in any order."""

    @initialize(
        concurrency=st.integers(1, 3),
        queue=st.none() | st.integers(0, 4),
        cores=st.none() | st.sampled_from([1.0, 2.5]),
    )
    def begin(self, concurrency, queue, cores):
        self.groups = {
            "early": GroupConfig(
                name="early", models=("m0", "m1"), concurrency=concurrency, queue=queue
            ),
            "late": GroupConfig(name="late", models=("m2",), cpu_cores=cores, gpus=0.0),
        }
        self.gate = Admission(
            QueueConfig(capacity=dict.fromkeys(PriorityClass, 6)),
            SlotBook({}),
            GroupShares(self.groups),
        )
        self.now_s = 0.0
        self.running: list[Ticket] = []
        self.waiting: list[Ticket] = []

    @rule(
        name=st.sampled_from(NAMES[:4]),
        priority=st.sampled_from(PriorityClass),
        ready=st.booleans(),
    )
    def come(self, name, priority, ready):
        self.now_s += 1.0
        ticket = Ticket(
            request_id=RequestId(f"r{self.now_s:g}"),
            model=name,
            priority=priority,
            arrived_at_s=self.now_s,
        )
        verdict = self.gate.arrive(ticket, ready=ready)
        if verdict is Verdict.GO:
            self.running.append(ticket)
        elif verdict is Verdict.WAIT:
            self.waiting.append(ticket)

    @precondition(lambda self: self.running)
    @rule(data=st.data(), put_back=st.booleans())
    def end(self, data, put_back):
        ticket = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        if put_back:
            self.gate.put_back(ticket)
            self.waiting.append(ticket)
        else:
            self.gate.end(ticket)
        for name in self.gate.freed_by(ticket.model):
            released = self.gate.release(name, self.now_s)
            self.running += released
            self.waiting = [one for one in self.waiting if one not in released]

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data):
        self.gate.leave(self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1))))

    @invariant()
    def bounds_hold(self):
        if not hasattr(self, "gate"):
            return
        running = Counter("early" if t.model in ("m0", "m1") else t.model for t in self.running)
        early, late = self.groups["early"], self.groups["late"]
        assert running["early"] <= (early.concurrency or 0)
        if late.cpu_cores is not None:
            assert running["m2"] <= max(1.0, late.cpu_cores)
        waiting = [t for t in self.waiting if t.model in ("m0", "m1")]
        # One that was put back keeps its place, whatever the queue holds.
        assert early.queue is None or len(waiting) <= early.queue + (early.concurrency or 0) * 9

    def teardown(self):
        if not hasattr(self, "gate"):
            return
        for ticket in self.waiting:
            self.gate.leave(ticket)
        for ticket in self.running:
            self.gate.end(ticket)
        for name in NAMES[:3]:
            assert self.gate.has_slot(name, self.now_s)
        assert not any(self.gate.shares._running.values())
        assert not any(self.gate.shares._waiting.values())


TestSharedGate = SharedGate.TestCase


def test_a_world_without_groups_is_planned_as_before():
    w = world(model(NAMES[0], waiting=1, wanted_since_s=99.0), model(NAMES[1], Residency.HOT))
    plain = PlannerConfig(policy="lru", reserve_ratio=0.0)
    grouped = replace(plain, groups={"none": GroupConfig(name="none")})
    plans = [
        plan(world=w, forecasts={}, state=PlannerState(), config=config).plan.actions
        for config in (plain, grouped)
    ]
    assert plans[0] == plans[1]
