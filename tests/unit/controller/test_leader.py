"""One controller on ports in memory: what it does about what it hears, in virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from contracts.config import ModelProfile
from contracts.errors import Transient
from contracts.events import (
    ActionFailed,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelLoadStarted,
    ModelUnloaded,
    NodeObserved,
)
from contracts.ids import GatewayId, ModelId
from contracts.messages import (
    GatewayBeat,
    LoadRequested,
    SettingsChanged,
    UnloadRequested,
)
from contracts.plan import Outcome
from contracts.reasons import Reason
from contracts.world import Mode, PrefetchTally, Residency, Sla
from controller.memory import usable_bytes
from controller.roster import GONE_AFTER_S
from tests import worlds
from tests.controller_stage import GATEWAY, NODE, START_S, A, B, C, Stage


@pytest.fixture
async def stage():
    stage = Stage()
    yield stage
    await stage.close()


def kinds(events):
    return [type(event).__name__ for event in events]


class TestDemand:
    async def test_a_wish_is_answered_at_once_and_its_model_loaded(self, stage):
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(0.0)
        (answer,) = await stage.answers()
        assert (answer.model, answer.accepted, answer.reason) == (A, True, Reason.DEMAND)
        assert answer.expected_s == pytest.approx(1.0 + 10 * worlds.MIB / 600e6)
        await stage.clock.advance(5.0)
        assert stage.calls() == [(0.0, "load_started", A), (5.0, "loaded", A)]
        table = (await stage.tables())[-1]
        assert table.models[A].residency is Residency.HOT

    async def test_gateways_are_told_as_things_change(self, stage):
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(5.0)
        seen = [t.models[A].residency for t in await stage.tables() if A in t.models]
        assert list(dict.fromkeys(seen)) == [Residency.COLD, Residency.LOADING, Residency.HOT]
        stored = await stage.snapshots.routing()
        assert stored is not None
        assert stored.models[A].residency is Residency.HOT

    async def test_an_unchanged_table_is_repeated_each_ten_seconds_and_no_more(self, stage):
        await stage.start()
        await stage.clock.advance(1.0)
        await stage.tables()
        await stage.clock.advance(30.0)
        assert len(await stage.tables()) == 3

    async def test_a_resident_model_needs_no_load(self, stage):
        stage.server.resident = {A}
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(0.0)
        (answer,) = await stage.answers()
        assert (answer.accepted, answer.reason) == (True, Reason.RESIDENT)

    async def test_many_who_ask_for_one_model_are_answered_together(self, stage):
        await stage.start()
        for number in range(5):
            await stage.want(A, f"r{number}")
        await stage.clock.advance(5.0)
        assert len(await stage.answers()) == 1
        assert [what for _, what, _ in stage.calls()] == ["load_started", "loaded"]

    async def test_an_event_alone_brings_the_load(self, stage):
        await stage.start()
        await stage.log(stage.received("r1", A))
        await stage.clock.advance(5.0)
        assert A in stage.server.resident

    async def test_an_unlisted_model_is_refused_and_the_list_read_again(self, stage, monkeypatch):
        await stage.start()
        new = ModelId("new")
        stage.server.load_s[new] = 5.0
        models = stage.server.models

        async def a_moment_later():
            await stage.clock.sleep(0.1)
            return await models()

        monkeypatch.setattr(stage.server, "models", a_moment_later)
        await stage.want(new)
        await stage.clock.advance(0.1)
        (answer,) = await stage.answers()
        assert (answer.accepted, answer.reason) == (False, Reason.UNKNOWN_MODEL)
        await stage.want(new)
        await stage.clock.advance(5.0)
        assert [a.accepted for a in await stage.answers()] == [True]
        assert new in stage.server.resident

    async def test_a_failed_load_is_told_and_tried_again_after_its_cool_down(self, stage):
        stage.server.fail_loads(A, Transient("no memory", retry_after_s=10.0))
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(5.0)
        await stage.answers()
        await stage.want(A)
        await stage.clock.advance(0.0)
        (answer,) = await stage.answers()
        assert (answer.accepted, answer.reason) == (False, Reason.COOL_DOWN)
        assert answer.retry_after_s == pytest.approx(10.0)
        # the gateway's beat says that its caller still waits, and at 15 s the load begins again
        await stage.beats(15.0, waiting={A: 1})
        assert [(at, what) for at, what, _ in stage.calls()] == [
            (0.0, "load_started"),
            (5.0, "load_failed"),
            (15.0, "load_started"),
            (20.0, "loaded"),
        ]

    async def test_a_lost_node_is_refused(self, stage):
        await stage.start()
        stage.server.fault = Transient("gone")
        await stage.clock.advance(6.0)
        await stage.want(A)
        await stage.clock.advance(0.0)
        (answer,) = await stage.answers()
        assert (answer.accepted, answer.reason) == (False, Reason.NODE_LOST)


class TestEvictions:
    async def test_room_is_made_with_the_gateways_leave(self, stage):
        stage.server.resident = {A, B}
        await stage.start()
        await stage.beats(4.0)
        await stage.log(stage.received("r0", B), stage.dispatched("r0", B, cold=False))
        await stage.log(worlds.completed("r0", B, stage.now_s))
        await stage.want(C)
        await stage.beats(1.0)
        await stage.beats(6.0, waiting={C: 1})
        assert stage.server.resident == {B, C}
        events = await stage.happened()
        gone = next(event for event in events if isinstance(event, ModelUnloaded))
        begun = next(event for event in events if isinstance(event, ModelLoadStarted))
        assert (gone.model, begun.model) == (A, C)
        assert gone.at_s <= begun.at_s

    async def test_while_it_drains_gateways_see_it(self, stage):
        stage.server.resident = {A, B}
        await stage.start()
        await stage.beats(4.0)
        await stage.tables()
        await stage.want(C)
        await stage.clock.advance(0.0)
        table = (await stage.tables())[-1]
        assert table.draining.keys() == {A}
        assert table.models[A].residency is Residency.DRAINING
        await stage.beat(drains=tuple(table.draining.values()))
        await stage.clock.advance(0.0)
        table = (await stage.tables())[-1]
        assert (table.draining, table.models[A].residency) == ({}, Residency.COLD)

    async def test_memory_is_never_overdrawn(self, stage):
        await stage.start()
        for turn, name in enumerate([A, B, C, A, C, B, A]):
            await stage.want(name, f"r{turn}")
            await stage.beats(8.0, waiting={name: 1})
        assert stage.server.peak_bytes <= 25 * worlds.MIB
        assert len(await stage.happened()) > 20

    async def test_a_victim_that_is_used_past_us_is_let_be_for_a_while(self, stage):
        # LocalAI calls both busy, and no gateway knows why: nothing may be unloaded
        stage.server.resident = {A, B}
        stage.server.busy = {A, B}
        await stage.start()
        await stage.beats(4.0)
        await stage.happened()
        await stage.want(C)
        await stage.beats(20.0, waiting={C: 1})
        failed = [e for e in await stage.happened() if isinstance(e, ActionFailed)]
        assert {e.error for e in failed} == {"LocalAI calls it busy", "no room was made"}
        # each of the two is tried about every five seconds, not as fast as it goes
        assert 4 <= len(failed) <= 24
        stage.server.busy = {B}
        await stage.beats(12.0, waiting={C: 1})
        assert stage.server.resident == {B, C}


class TestObserve:
    @pytest.fixture
    async def watching(self, stage):
        stage.config = replace(stage.config, active_by_default=False)
        stage.server.resident = {A, B}
        await stage.start()
        return stage

    async def test_nothing_is_ordered_and_it_says_so(self, watching):
        await watching.want(C)
        await watching.beats(10.0, waiting={C: 1})
        assert watching.calls() == []
        answers = await watching.answers()
        assert {(a.accepted, a.reason) for a in answers} == {(False, Reason.OBSERVE_ONLY)}

    async def test_what_would_be_done_is_recorded_once(self, watching):
        await watching.want(C)
        await watching.beats(10.0, waiting={C: 1})
        changes = [d for d in await watching.decisions() if d.outcome is Outcome.CHANGE]
        assert [d.subject for d in changes] == [A, C]
        assert all(("mode", "observe") in d.evidence for d in changes)

    async def test_what_localai_does_is_followed(self, watching):
        watching.server.resident = {B, C}
        await watching.clock.advance(6.0)
        table = (await watching.tables())[-1]
        assert [table.models[n].residency for n in (A, C)] == [Residency.COLD, Residency.HOT]
        assert table.mode is Mode.OBSERVE

    async def test_the_mode_is_changed_while_it_runs(self, watching):
        await watching.want(C)
        await watching.beats(4.0, waiting={C: 1})
        await watching.controls.set_mode(Mode.ACTIVE)
        await watching.to_controller.send(SettingsChanged(at_s=watching.now_s))
        with capture_logs() as logs:
            await watching.beats(6.0, waiting={C: 1})
        (said,) = [line for line in logs if line["event"] == "mode_changed"]
        assert (said["before"], said["now"]) == ("observe", "active")
        assert C in watching.server.resident
        await watching.controls.set_mode(Mode.OBSERVE)
        await watching.to_controller.send(SettingsChanged(at_s=watching.now_s))
        calls = len(watching.calls())
        await watching.want(A, "r2")
        await watching.beats(6.0, waiting={A: 1})
        assert len(watching.calls()) == calls


class TestPeople:
    async def test_a_load_and_an_unload_by_hand(self, stage):
        await stage.start()
        await stage.to_controller.send(LoadRequested(model=A, at_s=stage.now_s))
        await stage.clock.advance(5.0)
        assert stage.server.resident == {A}
        await stage.to_controller.send(UnloadRequested(model=A, at_s=stage.now_s))
        await stage.beats(1.0)
        assert stage.server.resident == set()

    async def test_a_load_by_hand_of_what_is_there_pins_nothing(self, stage):
        stage.server.resident = {A, B}
        await stage.start()
        await stage.to_controller.send(LoadRequested(model=A, at_s=stage.now_s))
        await stage.beats(4.0)
        await stage.want(C)
        await stage.beats(7.0, waiting={C: 1})
        assert stage.server.resident == {B, C}

    async def test_an_unload_by_hand_of_what_is_not_there_strikes_nobody_later(self, stage):
        await stage.start()
        await stage.to_controller.send(UnloadRequested(model=A, at_s=stage.now_s))
        await stage.want(A)
        await stage.beats(4.0, waiting={A: 1})
        await stage.beats(10.0)
        assert stage.server.resident == {A}

    async def test_a_pinned_model_is_loaded_and_kept(self, stage):
        await stage.controls.set_pin(A, pinned=True)
        await stage.start()
        await stage.beats(6.0)
        assert stage.server.resident == {A}
        for turn, name in enumerate([B, C, B, C]):
            await stage.want(name, f"r{turn}")
            await stage.beats(7.0, waiting={name: 1})
        assert A in stage.server.resident

    async def test_targets_and_classes_reach_the_gateways(self, stage):
        await stage.start()
        await stage.controls.put_sla(Sla(model=A, target_s=0.5))
        await stage.to_controller.send(SettingsChanged(at_s=stage.now_s))
        await stage.clock.advance(0.0)
        assert A in (await stage.tables())[-1].classes
        assert (await stage.world()).slas[A].target_s == 0.5

    async def test_the_configuration_pins_preloads_and_sets_targets(self, stage):
        stage.with_profiles(
            ModelProfile(model=A, pinned=True),
            ModelProfile(model=B, preload=True),
            ModelProfile(model=C, target_s=7.0),
        )
        await stage.start()
        await stage.beats(6.0)
        assert stage.server.resident == {A, B}
        world = await stage.world()
        assert world.models[A].pinned
        assert world.slas[C].target_s == 7.0
        assert world.preloads == frozenset()

    async def test_a_preload_that_is_there_already_is_not_loaded_again_later(self, stage):
        stage.with_profiles(ModelProfile(model=A, preload=True))
        stage.server.resident = {A, B}
        await stage.start()
        await stage.beats(4.0)
        await stage.want(C)
        await stage.beats(7.0, waiting={C: 1})
        await stage.beats(10.0)
        assert stage.server.resident == {B, C}


class TestForecasts:
    async def test_a_forecast_loads_ahead(self):
        stage = Stage(policy="headstart")
        await stage.start()
        forecast = worlds.curve(A, {20: 3.0}, made_s=stage.now_s, expires_s=stage.now_s + 60)
        await stage.forecasts.put((forecast,))
        await stage.clock.advance(6.0)
        started = [e for e in await stage.happened() if isinstance(e, ModelLoadStarted)]
        assert [(e.model, e.cause) for e in started] == [(A, LoadCause.PREFETCH)]
        assert (await stage.world()).prefetches == PrefetchTally(started=1)
        await stage.close()

    async def test_so_does_one_that_was_there_before_the_start(self):
        stage = Stage(policy="headstart")
        forecast = worlds.curve(A, {20: 3.0}, made_s=stage.now_s, expires_s=stage.now_s + 60)
        await stage.forecasts.put((forecast,))
        await stage.start()
        await stage.clock.advance(5.0)
        assert A in stage.server.resident
        await stage.close()


class TestRecords:
    async def test_decisions_are_kept_with_their_reasons(self, stage):
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(0.0)
        decided = {d.subject: d for d in await stage.decisions()}
        assert decided[A].reason is Reason.DEMAND
        assert await stage.journal.get(decided[A].decision_id) == decided[A]

    async def test_events_of_an_order_are_logged_in_their_order(self, stage):
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(5.0)
        events = [e for e in await stage.happened() if not isinstance(e, NodeObserved)]
        assert kinds(events) == ["ModelLoadStarted", "ModelLoaded", "ActionApplied"]
        assert len({event.event_id for event in events}) == len(events)

    async def test_the_world_is_published_each_second(self, stage):
        await stage.start()
        await stage.clock.advance(1.0)
        first = await stage.snapshots.world()
        await stage.clock.advance(1.0)
        second = await stage.snapshots.world()
        assert first is not None
        assert second is not None
        assert second.taken_at_s == first.taken_at_s + 1.0

    async def test_queues_are_summed_over_gateways(self, stage):
        await stage.start()
        await stage.beat(queued={"realtime": 3})
        world = await stage.world()
        assert world.queues[0].waiting == 3

    async def test_cold_starts_are_counted_beside_what_localais_lru_would_have_had(self, stage):
        await stage.start()
        for request, name in (("r1", A), ("r2", B), ("r3", A)):
            await stage.log(stage.received(request, name))
            await stage.beats(6.0, waiting={name: 1})
            await stage.log(
                stage.dispatched(request, name, cold=request != "r3"),
                worlds.completed(request, name, stage.now_s),
            )
            await stage.clock.advance(1.0)
        baselines = await stage.snapshots.baselines()
        assert baselines["headstart"] == {"arrivals": 3, "cold_starts": 2}
        assert baselines["localai-lru"]["arrivals"] == 3


class TestGateways:
    async def test_the_requests_of_one_that_goes_silent_are_forgotten(self, stage):
        await stage.start()
        await stage.beats(3.0)
        await stage.log(stage.received("r1", A), stage.dispatched("r1", A, cold=True))
        await stage.beat(in_flight={A: 1})
        assert (await stage.world()).models[A].in_flight == 1
        await stage.clock.advance(GONE_AFTER_S + 2.0)
        assert (await stage.world()).models[A].in_flight == 0

    async def test_those_of_one_that_leaves_are_forgotten_at_once(self, stage):
        await stage.start()
        await stage.log(stage.received("r1", A), stage.dispatched("r1", A, cold=True))
        await stage.beat(leaving=True)
        assert (await stage.world()).models[A].in_flight == 0

    async def test_a_request_whose_end_was_lost_is_forgotten_by_the_beats(self, stage):
        await stage.start()
        await stage.log(stage.received("r1", A), stage.dispatched("r1", A, cold=True))
        await stage.beats(2.0, in_flight={A: 1})
        assert (await stage.world()).models[A].in_flight == 1
        await stage.beats(2.0)
        assert (await stage.world()).models[A].in_flight == 0


class TestRestart:
    async def test_it_goes_on_from_what_the_last_one_left(self, stage):
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(6.0)
        await stage.stop()
        await stage.start("two")
        world = await stage.world()
        assert world.models[A].residency is Residency.HOT
        assert world.models[A].load_s == pytest.approx(5.0)
        assert world.demand_loads == 1

    async def test_what_happened_in_between_is_known_before_anything_is_decided(
        self, stage, monkeypatch
    ):
        await stage.start()
        stage.server.load_s[A] = 60.0
        await stage.want(A)
        await stage.log(stage.received("r1", A))
        await stage.clock.advance(2.0)
        await stage.kill()
        # at 2 s nobody leads any more; at 5 s the caller has had enough; then somebody leads
        await stage.clock.advance(3.0)
        await stage.log(worlds.cancelled("r1", A, stage.now_s))
        await stage.clock.advance(6.0)
        read_after = stage.events.read_after

        async def slow(entry_id, *, count, block_s=0.0):
            await stage.clock.sleep(0.2)
            return await read_after(entry_id, count=count, block_s=block_s)

        place = await stage.events.last_id()
        monkeypatch.setattr(stage.events, "read_after", slow)
        await stage.start("two")
        await stage.clock.advance(10.0)
        since = [entry.value for entry in await read_after(place, count=1000)]
        assert "NodeObserved" in kinds(since)
        assert "ModelLoadStarted" not in kinds(since)

    async def test_orders_that_ended_with_the_last_one_are_declared_ended(self, stage):
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(2.0)
        await stage.kill()
        world = await stage.snapshots.world()
        assert world is not None
        assert world.models[A].residency is Residency.LOADING
        await stage.happened()
        await stage.clock.advance(10.0)
        await stage.start("two")
        await stage.clock.advance(0.0)
        failed = [e for e in await stage.happened() if isinstance(e, ActionFailed)]
        assert [(e.kind, e.subject, e.error) for e in failed] == [("load", A, "the leader changed")]

    async def test_drains_of_the_last_one_end_as_well(self, stage):
        stage.server.resident = {A, B}
        await stage.start()
        await stage.beats(4.0)
        await stage.want(C)
        await stage.clock.advance(0.0)
        await stage.kill()
        await stage.happened()
        await stage.clock.advance(10.0)
        await stage.start("two")
        failed = [e for e in await stage.happened() if isinstance(e, ActionFailed)]
        assert ("unload", A) in {(e.kind, e.subject) for e in failed}

    async def test_requests_of_a_gateway_that_died_meanwhile_are_forgotten(self, stage):
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(6.0)
        await stage.log(stage.dispatched("r1", A, cold=True))
        await stage.want(B, "r2")
        await stage.clock.advance(6.0)
        # the machine restarts: another gateway comes back, under another name
        await stage.stop()
        await stage.start("two")
        for _ in range(5):
            await stage.to_controller.send(GatewayBeat(gateway=GatewayId("gw2"), at_s=stage.now_s))
            await stage.clock.advance(1.0)
        world = await stage.world()
        assert world.requests == {}
        assert [(m.waiting, m.in_flight) for m in world.models.values()] == [(0, 0)] * 3

    @pytest.mark.parametrize(
        ("used", "wasted", "hazard", "loads"),
        [(0, 200, 1.0, True), (200, 0, 0.2, False)],
        ids=["not dearer", "not cheaper"],
    )
    async def test_the_last_ones_prefetches_do_not_change_the_price(
        self, used, wasted, hazard, loads
    ):
        stage = Stage(policy="headstart")
        await stage.start()
        world = await stage.world()
        await stage.stop()
        tally = PrefetchTally(started=300, used=used, wasted=wasted)
        await stage.snapshots.put_world(replace(world, prefetches=tally))
        await stage.start("two")
        forecast = worlds.curve(A, {20: hazard}, made_s=stage.now_s, expires_s=stage.now_s + 60)
        await stage.forecasts.put((forecast,))
        await stage.clock.advance(6.0)
        # taken as news, 200 in a row would make every prefetch too dear, or any worth it
        assert (A in stage.server.resident) is loads
        await stage.close()

    async def test_wishes_of_operators_end_with_a_restart(self, stage):
        stage.server.fault = Transient("gone")
        await stage.start()
        await stage.clock.advance(0.0)
        await stage.stop()
        world = await stage.snapshots.world()
        assert world is not None
        await stage.snapshots.put_world(replace(world, operator_loads=frozenset({A})))
        await stage.start("two")
        assert (await stage.world()).operator_loads == frozenset()


async def test_nodes_are_told_with_the_memory_that_orders_may_fill(stage):
    await stage.start()
    await stage.clock.advance(2.0)
    node = (await stage.world()).nodes[NODE]
    assert node.budget_bytes == usable_bytes(node, stage.config.planner)
    assert 0 < node.budget_bytes <= node.memory_total_bytes


class TestOutages:
    async def test_redis_away_for_a_while_loses_nothing_and_crashes_nothing(self, stage):
        await stage.start()
        await stage.beats(2.0)
        await stage.happened()
        stage.fault(Transient("away"))
        await stage.clock.advance(5.0)
        assert not stage.crashed()
        stage.fault(None)
        await stage.beats(1.0)
        await stage.want(A)
        await stage.beats(7.0, waiting={A: 1})
        assert A in stage.server.resident
        events = await stage.happened()
        # polls that were made during the outage are in the log as well
        polls = [e.at_s - START_S for e in events if isinstance(e, NodeObserved)]
        assert 5.0 in polls

    async def test_the_gateways_are_not_taken_for_gone_since_nobody_could_hear_them(self, stage):
        stage.server.resident = {A, B}
        await stage.start()
        await stage.beats(4.0)
        await stage.log(stage.received("r1", A), stage.dispatched("r1", A, cold=False))
        await stage.beat(in_flight={A: 1})
        await stage.clock.advance(0.5)
        for port in (stage.to_controller, stage.events):
            port.fault = Transient("away")
        await stage.clock.advance(8.0)
        for port in (stage.to_controller, stage.events):
            port.fault = None
        # it can hear again, and for a moment there is nothing to hear
        await stage.clock.advance(2.0)
        await stage.beats(2.0, in_flight={A: 1})
        assert (await stage.world()).models[A].in_flight == 1

    async def test_a_store_that_is_away_at_the_start_is_waited_for(self, stage):
        stage.snapshots.fault = Transient("away")
        await stage.start()
        await stage.clock.advance(3.0)
        stage.snapshots.fault = None
        await stage.clock.advance(1.0)
        await stage.want(A)
        await stage.clock.advance(5.0)
        assert A in stage.server.resident

    async def test_localai_away_and_back(self, stage):
        await stage.start()
        stage.server.fault = Transient("gone")
        await stage.clock.advance(11.0)
        assert not (await stage.world()).nodes[NODE].alive
        stage.server.fault = None
        await stage.clock.advance(5.0)
        assert (await stage.world()).nodes[NODE].alive

    async def test_a_load_that_was_running_when_localai_went_away_fails(self, stage):
        await stage.start()
        await stage.want(A)
        await stage.clock.advance(2.0)
        stage.server.fault = Transient("gone")
        await stage.clock.advance(3.0)
        failed = [e for e in await stage.happened() if isinstance(e, ModelLoadFailed)]
        assert [(e.model, e.error) for e in failed] == [(A, "gone")]


class TestOthersLoads:
    async def test_a_gateways_own_load_is_adopted(self, stage):
        await stage.start()
        source = str(GATEWAY)
        start = worlds.load_started(A, stage.now_s, LoadCause.GATEWAY, source)
        await stage.log(stage.received("r1", A), start)
        loading = asyncio.create_task(stage.server.load(A))
        await stage.beats(5.0, waiting={A: 1})
        await loading
        done = worlds.loaded(A, stage.now_s, load_s=5.0, cause=LoadCause.GATEWAY, source=source)
        await stage.log(done)
        world = await stage.world()
        assert world.models[A].residency is Residency.HOT
        assert [what for _, what, _ in stage.calls()] == ["load_started", "loaded"]
        ours = [e for e in await stage.happened() if isinstance(e, ModelLoaded)]
        assert [e.cause for e in ours] == [LoadCause.GATEWAY]

    async def test_one_whose_gateway_died_ends_when_the_model_is_seen(self, stage):
        await stage.start()
        await stage.log(worlds.load_started(A, stage.now_s, LoadCause.GATEWAY, str(GATEWAY)))
        await stage.clock.advance(1.0)
        stage.server.resident.add(A)
        await stage.clock.advance(5.0)
        assert (await stage.world()).models[A].residency is Residency.HOT
