"""What one controller orders, and for whom: wishes, people, forecasts, and when it only looks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from contracts.config import ModelProfile
from contracts.errors import Transient
from contracts.events import ActionFailed, LoadCause, ModelLoadStarted, ModelUnloaded
from contracts.ids import ModelId
from contracts.messages import LoadRequested, SettingsChanged, UnloadRequested
from contracts.plan import Outcome
from contracts.reasons import Reason
from contracts.world import Mode, PrefetchTally, Residency, Sla
from tests import worlds
from tests.controller_stage import A, B, C, Stage


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
