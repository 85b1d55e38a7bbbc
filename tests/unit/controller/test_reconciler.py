"""Orders carried out against a LocalAI in memory, in virtual time. Loads take 5 s."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from contracts.config import ControllerConfig
from contracts.errors import Permanent, Transient
from contracts.events import (
    ActionApplied,
    ActionFailed,
    AnyEvent,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    PriorityClass,
    UnloadCause,
)
from contracts.ids import GatewayId, ModelId, NodeId
from contracts.messages import GatewayBeat
from contracts.plan import LoadModel, Plan, SetLimits, UnloadModel
from contracts.ports import ModelServer, NodeReport
from contracts.reasons import Reason
from contracts.world import Mode, ModelStatus, Residency, WorldSnapshot
from controller.reconciler import Reconciler
from controller.roster import GONE_AFTER_S, Roster
from controller.stamps import Stamp
from controller.takeover import orphaned
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryModelServer
from tests.worlds import NODE, A, B, C, D

DRAIN_S = 5.0
LOAD_LIMIT_S = 60.0


class Site:
    """A reconciler, its server, and what it said."""

    def __init__(self) -> None:
        self.clock = VirtualClock(1000.0)
        self.server = MemoryModelServer(self.clock, {A: 5.0, B: 5.0, C: 5.0})
        self.server.resident = {B, C}
        self.servers: dict[NodeId, ModelServer] = {NODE: self.server}
        self.events: list[AnyEvent] = []
        self.tables: list[dict[ModelId, str]] = []
        self.start_s = 0.0
        self.leads = True
        self.waited_for: set[ModelId] = set()
        self.roster = Roster()
        self._numbers = itertools.count(1)
        self.reconciler = Reconciler(
            clock=self.clock,
            servers=self.servers,
            config=ControllerConfig(drain_timeout_s=DRAIN_S, load_timeout_s=LOAD_LIMIT_S),
            stamp=self.stamp,
            emit=self.events.append,
            drains_changed=lambda: self.tables.append(dict(self.reconciler.draining)),
            leads=lambda: self.leads,
            is_waited_for=self.waited_for.__contains__,
        )

    def stamp(self) -> Stamp:
        return Stamp(
            event_id=f"e{next(self._numbers)}", at_s=self.clock.now_s(), source="controller"
        )

    def order(self, *actions) -> None:
        self.reconciler.order(
            Plan(
                plan_id="p",
                made_at_s=self.clock.now_s(),
                based_on=1,
                mode=Mode.ACTIVE,
                actions=actions,
                decisions=(),
            )
        )

    def beat(self, *drains, gateway="gw", **fields) -> None:
        beat = GatewayBeat(
            gateway=GatewayId(gateway), at_s=self.clock.now_s(), drains=drains, **fields
        )
        self.roster = self.roster.heard(beat)
        self.reconciler.heard(self.roster)

    def said(self) -> list[tuple[float, str, str]]:
        """When, what and about whom; seconds since the test began."""
        return [
            (event.at_s - self.start_s, type(event).__name__, event_subject(event))
            for event in self.events
        ]

    def errors(self) -> list[str]:
        return [
            event.error
            for event in self.events
            if isinstance(event, ActionFailed | ModelLoadFailed)
        ]


def event_subject(event) -> str:
    return event.subject if isinstance(event, ActionApplied | ActionFailed) else event.model


def load(name, *after, cause=LoadCause.DEMAND):
    return LoadModel(
        action_id=f"load-{name}",
        model=name,
        node=NODE,
        cause=cause,
        reason=Reason.DEMAND,
        after=after,
    )


def unload(name, cause=UnloadCause.EVICTED):
    return UnloadModel(
        action_id=f"drain-{name}",
        model=name,
        node=NODE,
        cause=cause,
        reason=Reason.LEAST_RECENTLY_USED,
    )


@pytest.fixture
async def site():
    site = Site()
    # Who has listened for as long as a beat may take knows which gateways there are.
    await site.clock.advance(GONE_AFTER_S)
    site.start_s = site.clock.now_s()
    yield site
    await site.reconciler.close()


class TestLoad:
    async def test_started_loaded_and_measured(self, site):
        site.order(load(A, cause=LoadCause.PREFETCH))
        await site.clock.advance(4.9)
        assert site.said() == [(0.0, "ModelLoadStarted", A)]
        await site.clock.advance(0.1)
        assert site.said()[1:3] == [(5.0, "ModelLoaded", A), (5.0, "ActionApplied", A)]
        started, done, applied, _warmed = site.events
        assert isinstance(started, ModelLoadStarted)
        assert isinstance(done, ModelLoaded)
        assert (done.load_s, done.cause, done.node) == (5.0, LoadCause.PREFETCH, NODE)
        assert (applied.action_id, applied.kind, applied.took_s) == ("load-a", "load", 5.0)
        assert A in site.server.resident

    async def test_several_at_once(self, site):
        site.server.resident.clear()
        site.order(load(A), load(B))
        await site.clock.advance(5.0)
        assert {A, B} <= site.server.resident

    async def test_a_failed_load_says_when_localai_may_be_asked_again(self, site):
        site.server.fail_loads(A, Transient("no memory", retry_after_s=40.0))
        site.order(load(A))
        await site.clock.advance(5.0)
        failed = site.events[-1]
        assert isinstance(failed, ModelLoadFailed)
        assert (failed.error, failed.retry_after_s) == ("no memory", 40.0)

    async def test_in_localais_cool_down_it_fails_with_the_rest(self, site):
        site.server.fail_loads(A, Transient("no memory"))
        site.order(load(A))
        await site.clock.advance(7.0)
        site.order(load(A))
        await site.clock.advance(0.0)
        assert site.events[-1].retry_after_s == pytest.approx(8.0)

    async def test_a_refused_one_says_nothing_of_when(self, site):
        site.server.fail_loads(A, Permanent("no such backend"))
        site.order(load(A))
        await site.clock.advance(5.0)
        assert site.events[-1].retry_after_s is None

    async def test_a_load_without_an_end_is_given_up(self, site):
        site.server.load_s[A] = 1e6
        site.order(load(A))
        await site.clock.advance(LOAD_LIMIT_S)
        assert site.errors() == ["not loaded within 60 s"]
        assert site.said()[-1] == (LOAD_LIMIT_S, "ModelLoadFailed", A)

    async def test_without_the_lease_nothing_is_loaded(self, site):
        site.leads = False
        site.order(load(A))
        await site.clock.advance(1.0)
        assert site.said() == [(0.0, "ActionFailed", A)]
        assert site.errors() == ["the lease was lost"]
        assert site.server.calls == []

    async def test_nobody_who_leaves_takes_a_load_along(self, site):
        site.order(load(A))
        site.order(load(A))
        await site.clock.advance(5.0)
        assert [call.what for call in site.server.calls] == ["load_started", "loaded"]
        assert [what for _, what, _ in site.said()].count("ModelLoaded") == 2


class TestLostNode:
    async def test_a_load_that_its_node_took_along_says_so_first(self, site):
        site.order(load(A))
        await site.clock.advance(1.0)
        site.server.fault = Transient("connection refused")
        await site.clock.advance(5.0)
        names = [type(event).__name__ for event in site.events]
        assert names == ["ModelLoadStarted", "NodeLost", "ModelLoadFailed"]

    async def test_one_that_leaves_while_it_is_asked_is_not_told_as_lost(self, site):
        async def leaves() -> NodeReport:
            site.servers.clear()
            raise Transient("the session is closed")

        site.order(load(A))
        await site.clock.advance(1.0)
        site.server.report = leaves
        site.server.fault = Transient("connection refused")
        await site.clock.advance(5.0)
        names = [type(event).__name__ for event in site.events]
        assert names == ["ModelLoadStarted", "ModelLoadFailed"]

    async def test_who_leads_no_more_looks_at_nobody(self, site):
        site.order(load(A))
        await site.clock.advance(1.0)
        await site.reconciler.close()
        site.server.fault = Transient("the session is closed")
        await site.clock.advance(5.0)
        names = [type(event).__name__ for event in site.events]
        assert names == ["ModelLoadStarted", "ModelLoadFailed"]

    async def test_a_copy_that_goes_already_is_left_to_that(self, site):
        plan = Plan(
            plan_id="p",
            made_at_s=0.0,
            based_on=1,
            mode=Mode.ACTIVE,
            actions=(unload(B),),
            decisions=(),
        )
        site.reconciler.order_copies(plan)
        site.reconciler.order_copies(plan)
        await site.clock.advance(3.0)
        assert [what for _, what, _ in site.said()] == ["ModelUnloaded", "ActionApplied"]
        assert not site.reconciler.leaving

    async def test_one_that_answers_is_not_lost(self, site):
        site.server.fail_loads(A, Transient("reset"))
        site.order(load(A))
        await site.clock.advance(5.0)
        assert [what for _, what, _ in site.said()] == ["ModelLoadStarted", "ModelLoadFailed"]


class TestGhost:
    async def test_a_dead_process_is_forgotten_without_a_drain(self, site):
        site.server.kill_process(B)
        site.order(unload(B, UnloadCause.GHOST))
        await site.clock.advance(0.1)
        gone, _ = site.events
        assert isinstance(gone, ModelUnloaded)
        assert gone.cause is UnloadCause.GHOST
        assert site.tables == []
        assert B not in site.server.resident

    async def test_a_live_one_stays(self, site):
        site.order(unload(B, UnloadCause.GHOST))
        await site.clock.advance(0.1)
        assert site.errors() == ["its process answers"]
        assert B in site.server.resident

    async def test_without_the_lease_nothing_is_ordered(self, site):
        site.server.kill_process(B)
        site.leads = False
        site.order(unload(B, UnloadCause.GHOST))
        await site.clock.advance(0.1)
        assert site.errors() == ["the lease was lost"]

    async def test_a_localai_that_is_away_says_why(self, site):
        site.server.fault = Transient("connection refused")
        site.order(unload(B, UnloadCause.GHOST))
        await site.clock.advance(0.1)
        assert site.errors() == ["connection refused"]


class TestUnload:
    async def test_without_a_gateway_it_goes_at_once(self, site):
        site.order(unload(B, UnloadCause.IDLE))
        await site.clock.advance(0.0)
        gone, applied = site.events
        assert isinstance(gone, ModelUnloaded)
        assert (gone.model, gone.cause, gone.node) == (B, UnloadCause.IDLE, NODE)
        assert (applied.kind, applied.subject) == ("unload", B)
        assert site.server.resident == {C}

    async def test_gateways_are_told_and_asked_first(self, site):
        site.beat()
        site.order(unload(B))
        await site.clock.advance(0.5)
        assert site.tables == [{B: "drain-b"}]
        assert site.events == []
        site.beat("drain-b", in_flight={C: 3})
        await site.clock.advance(0.0)
        assert site.said() == [(0.5, "ModelUnloaded", B), (0.5, "ActionApplied", B)]
        assert site.reconciler.draining == {}

    async def test_all_of_them(self, site):
        site.beat()
        site.beat(gateway="gw2")
        site.order(unload(B))
        site.beat("drain-b")
        await site.clock.advance(1.0)
        assert site.events == []
        site.beat("drain-b", gateway="gw2")
        await site.clock.advance(0.0)
        assert B not in site.server.resident

    async def test_one_that_still_serves_it_ends_the_drain(self, site):
        site.beat()
        site.order(unload(B))
        await site.clock.advance(0.1)
        site.beat("drain-b", in_flight={B: 1})
        await site.clock.advance(0.0)
        assert site.errors() == ["it is in use"]
        assert site.reconciler.draining == {}
        assert B in site.server.resident

    async def test_in_a_turn_what_is_in_flight_ends_by_itself(self, site):
        site.beat()
        site.order(replace(unload(B), drain_s=60.0))
        await site.clock.advance(0.1)
        for _ in range(40):
            site.beat("drain-b", in_flight={B: 1})
            await site.clock.advance(1.0)
        assert site.events == []
        site.beat("drain-b")
        await site.clock.advance(0.0)
        assert B not in site.server.resident

    async def test_but_not_for_ever(self, site):
        site.beat()
        site.order(replace(unload(B), drain_s=20.0))
        for _ in range(20):
            site.beat("drain-b", in_flight={B: 1})
            await site.clock.advance(1.0)
        assert site.errors() == ["it is in use"]
        assert B in site.server.resident

    async def test_nor_for_nobody(self, site):
        site.beat()
        site.waited_for.add(A)
        site.order(replace(unload(B), drain_s=20.0), load(A, B))
        await site.clock.advance(0.1)
        site.beat("drain-b", in_flight={B: 1})
        await site.clock.advance(1.0)
        assert site.events == []
        site.waited_for.clear()
        site.beat("drain-b", in_flight={B: 1})
        await site.clock.advance(0.0)
        assert site.errors() == ["it is in use", "no room was made"]
        assert B in site.server.resident

    async def test_whose_work_may_be_cancelled_is_said_as_long_as_it_drains(self, site):
        site.beat()
        site.order(replace(unload(B), drain_s=20.0, preempt=True))
        await site.clock.advance(0.1)
        assert site.reconciler.preempting == {B}
        site.beat("drain-b")
        await site.clock.advance(0.0)
        assert site.reconciler.preempting == set()

    async def test_one_that_stays_silent_ends_it_after_the_time_for_drains(self, site):
        site.beat()
        site.order(unload(B))
        await site.clock.advance(DRAIN_S - 0.1)
        assert site.events == []
        await site.clock.advance(0.1)
        assert site.errors() == ["it is in use"]

    async def test_one_that_is_gone_is_no_longer_waited_for(self, site):
        site.beat()
        site.order(unload(B))
        await site.clock.advance(3.5)
        roster, gone = site.roster.without_silent(site.clock.now_s())
        assert gone
        site.reconciler.heard(roster)
        await site.clock.advance(0.0)
        assert B not in site.server.resident

    async def test_what_localai_calls_busy_is_not_stopped(self, site):
        site.server.busy.add(B)
        site.order(unload(B))
        await site.clock.advance(0.0)
        assert site.errors() == ["LocalAI calls it busy"]
        assert B in site.server.resident

    async def test_nor_what_turns_busy_while_it_is_asked(self, site, monkeypatch):
        async def idle(model):
            site.server.busy.add(model)
            return False

        monkeypatch.setattr(site.server, "is_busy", idle)
        site.order(unload(B))
        await site.clock.advance(0.0)
        assert site.errors() == ["LocalAI calls it busy"]

    async def test_a_server_that_does_not_answer_ends_it(self, site):
        site.server.fault = Transient("no answer")
        site.order(unload(B))
        await site.clock.advance(0.0)
        assert site.errors() == ["no answer"]

    async def test_a_refusal_ends_it(self, site, monkeypatch):
        async def refuse(model):
            raise Permanent("forbidden")

        monkeypatch.setattr(site.server, "unload", refuse)
        site.order(unload(B))
        await site.clock.advance(0.0)
        assert site.errors() == ["forbidden"]

    async def test_what_is_gone_already_is_gone(self, site):
        site.order(unload(A))
        await site.clock.advance(0.0)
        assert isinstance(site.events[0], ModelUnloaded)

    async def test_without_the_lease_nothing_is_unloaded(self, site):
        site.beat()
        site.order(unload(B))
        await site.clock.advance(0.0)
        site.leads = False
        site.beat("drain-b")
        await site.clock.advance(0.0)
        assert site.errors() == ["the lease was lost"]
        assert B in site.server.resident


class TestRoomFirst:
    async def test_a_load_waits_for_its_victims(self, site):
        site.server.unload_s = 2.0
        site.order(unload(B), unload(C), load(A, B, C))
        await site.clock.advance(7.0)
        begun = next(at for at, what, _ in site.said() if what == "ModelLoadStarted")
        assert begun == 2.0
        assert site.server.resident == {A}

    async def test_a_victim_that_turns_busy_gives_the_load_up(self, site):
        site.beat()
        site.order(unload(B), unload(C), load(A, B, C))
        await site.clock.advance(0.1)
        site.beat("drain-b", "drain-c", in_flight={C: 1})
        await site.clock.advance(10.0)
        assert {(what, who) for _, what, who in site.said()} == {
            ("ActionFailed", C),
            ("ModelUnloaded", B),
            ("ActionApplied", B),
            ("ActionFailed", A),
        }
        assert set(site.errors()) == {"it is in use", "no room was made"}
        assert A not in site.server.resident
        assert not [call for call in site.server.calls if call.what == "load_started"]

    async def test_other_loads_go_on_meanwhile(self, site):
        site.beat()
        site.server.load_s[D] = 5.0
        site.order(unload(B), load(A, B), load(D))
        await site.clock.advance(5.0)
        assert D in site.server.resident


class TestLeaving:
    async def test_what_has_not_begun_is_given_up_and_a_load_that_runs_goes_on(self, site):
        site.server.resident.discard(C)
        site.beat()
        site.order(unload(B), load(A), load(C, B))
        await site.clock.advance(1.0)
        await site.reconciler.close()
        assert site.reconciler.draining == {}
        await site.clock.advance(10.0)
        # LocalAI kills a load whose caller leaves, so this one does not
        assert site.server.resident == {A, B}

    async def test_closing_twice_is_closing_once(self, site):
        await site.reconciler.close()
        await site.reconciler.close()


async def test_a_bug_in_one_order_does_not_stop_the_others(site, monkeypatch):
    async def crash(model):
        raise RuntimeError("a bug")

    monkeypatch.setattr(site.server, "is_busy", crash)
    site.order(unload(B), load(A))
    await site.clock.advance(5.0)
    assert A in site.server.resident
    assert site.reconciler.draining == {}


async def test_an_action_that_is_not_known_here_is_passed_over(site):
    limits = SetLimits(
        action_id="x",
        priority=PriorityClass.BATCH,
        slots=1,
        valid_until_s=2000.0,
        reason=Reason.OPERATOR,
    )
    site.order(limits, load(A))
    await site.clock.advance(5.0)
    assert A in site.server.resident


async def test_a_new_leader_hears_at_first_who_is_there():
    """A reconciler that has just begun knows no gateway; that does not mean there is none."""
    site = Site()
    site.order(unload(B))
    await site.clock.advance(GONE_AFTER_S - 0.1)
    assert site.events == []
    site.beat(in_flight={B: 1})
    await site.clock.advance(0.2)
    assert site.events == []
    site.beat("drain-b", in_flight={B: 1})
    await site.clock.advance(0.0)
    assert site.errors() == ["it is in use"]
    await site.reconciler.close()


def test_a_new_leader_declares_the_orders_of_the_last_one_ended():
    site = Site()
    models = [
        ModelStatus(model=A, node=NODE, residency=Residency.LOADING, load_cause=LoadCause.DEMAND),
        ModelStatus(model=B, node=NODE, residency=Residency.LOADING, load_cause=LoadCause.GATEWAY),
        ModelStatus(model=C, node=NODE, residency=Residency.DRAINING),
    ]
    world = WorldSnapshot(taken_at_s=0.0, models={status.model: status for status in models})
    found = orphaned(site.stamp, world)
    assert [(e.kind, e.subject) for e in found] == [("load", A), ("unload", C)]
