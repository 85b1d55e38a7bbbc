"""What one controller records and knows, also after restarts, outages and silences."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from contracts.errors import Transient
from contracts.events import ActionFailed, LoadCause, ModelLoaded, ModelLoadFailed, NodeObserved
from contracts.ids import GatewayId
from contracts.messages import GatewayBeat
from contracts.reasons import Reason
from contracts.world import PrefetchTally, Residency
from controller.memory import usable_bytes
from controller.roster import GONE_AFTER_S
from tests import worlds
from tests.controller_stage import GATEWAY, NODE, START_S, A, B, C, Stage


def kinds(events):
    return [type(event).__name__ for event in events]


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
