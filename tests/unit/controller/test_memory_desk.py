"""The desk by itself: stores that are away, nodes that do not answer, profiles that are removed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog

from contracts.config import ModelProfile, PlannerConfig
from contracts.errors import Transient
from contracts.memory import FootprintSource
from contracts.messages import ProfileForgotten
from contracts.world import WorldSnapshot
from controller.memory_desk import MemoryDesk, blind_desk
from simulator.clock import VirtualClock
from tests.controller_stage import NODE, A, B, C
from tests.machine_stage import CARD, GIB, Machine
from tests.worlds import model, observed, world


async def test_a_store_that_is_away_gets_it_later_and_one_line_says_so():
    stage = Machine()
    await stage.start()
    await stage.beats(6.0)
    stage.profiles.fault = Transient("away")
    with structlog.testing.capture_logs() as logged:
        await stage.load(A)
        await stage.beats(30.0)
        assert await _stored(stage) == []
        stage.profiles.fault = None
        await stage.beats(12.0)
    assert await _stored(stage) == [A]
    events = [line["event"] for line in logged]
    assert events.count("profiles_not_stored") == 1
    assert events.count("profiles_stored_again") == 1
    await stage.close()


async def _stored(stage: Machine):
    fault, stage.profiles.fault = stage.profiles.fault, None
    found = sorted(await stage.profiles.get_all())
    stage.profiles.fault = fault
    return found


async def test_a_store_that_is_away_at_the_start_is_waited_for():
    stage = Machine()
    stage.profiles.fault = Transient("away")
    await stage.start()
    await stage.beats(3.0)
    stage.profiles.fault = None
    await stage.beats(8.0)
    await stage.load(A)
    assert A in stage.machine.resident
    await stage.close()


async def test_what_was_removed_is_measured_anew():
    stage = Machine()
    await stage.start()
    await stage.beats(6.0)
    await stage.load(C)
    await stage.operator_unload(C)
    stage.machine.splits[C] = {CARD: 5 * GIB}
    await stage.to_controller.send(ProfileForgotten(model=C, at_s=stage.now_s))
    await stage.beats(2.0)
    await stage.load(C)
    assert (await stage.world()).models[C].split == {CARD: 5 * GIB}
    await stage.close()


async def test_another_configuration_is_measured_anew():
    stage = Machine()
    stage.with_profiles(ModelProfile(model=C, revision="first"))
    await stage.start()
    await stage.beats(6.0)
    await stage.load(C)
    await stage.operator_unload(C)
    assert (await stage.world()).models[C].footprint_source is FootprintSource.MEASURED
    config = replace(
        stage.config, profiles={C: ModelProfile(model=C, revision="second", footprint_bytes=7)}
    )
    stage.loop().reconfigure(config)
    await stage.beats(1.0)
    status = (await stage.world()).models[C]
    assert status.footprint_source is FootprintSource.ESTIMATED
    assert status.split == {}
    await stage.close()


async def test_kept_models_that_fit_again_are_told_too():
    stage = Machine(reserve_ratio=0.2)
    names = {name: ModelProfile(model=name, pinned=True) for name in (A, B, C)}
    stage.with_profiles(*names.values())
    with structlog.testing.capture_logs() as logged:
        await stage.start()
        await stage.beats(40.0)
        smaller = replace(stage.config, profiles={A: names[A]})
        stage.loop().reconfigure(smaller)
        await stage.beats(40.0)
    events = [line["event"] for line in logged]
    assert events.count("kept_models_exceed_memory") == 1
    assert events.count("kept_models_fit_again") == 1
    await stage.close()


async def test_a_node_that_does_not_answer_holds_nobody_up():
    clock = VirtualClock(1000.0)
    w = replace(world(model(A), mb=1000), taken_at_s=1000.0)

    async def hangs(_node):
        await clock.sleep(3600.0)

    desk = MemoryDesk(
        clock=clock, store=None, world=lambda: w, look=hangs, decided=lambda _found: None
    )
    before = desk.before(A, NODE)
    working = asyncio.create_task(desk.after_load(A, NODE, before, 5.0))
    await clock.advance(0.1)
    assert working.done(), "nobody had looked before, so that nothing can be said"
    assert await working == (None, {})
    stopping = asyncio.create_task(desk.before_stop(A, NODE))
    await clock.advance(1.1)
    assert stopping.done()
    seen = await desk.after_stop(A, NODE, await stopping)
    assert seen.is_back


async def test_a_look_that_fails_after_a_load_measures_nothing():
    stage = Machine()
    await stage.start()
    await stage.beats(6.0)
    told = stage.machine.report

    async def away():
        if A in stage.machine.resident:
            raise Transient("no answer")
        return await told()

    stage.machine.report = away  # type: ignore[method-assign]  # LocalAI stops answering
    await stage.load(A, seconds=6.0)
    stage.machine.report = told  # type: ignore[method-assign]  # and answers again
    await stage.beats(12.0)
    profile = await stage.profiles.get(A)
    assert profile is not None
    assert (profile.measures[0].footprint_count, profile.measures[0].rejected) == (0, 1)
    await stage.close()


async def test_a_blind_desk_says_nothing():
    desk = blind_desk(VirtualClock(1000.0))
    await desk.resume()
    before = desk.before(A, NODE)
    assert await desk.after_load(A, NODE, before, 1.0) == (None, {})
    assert (await desk.after_stop(A, NODE, await desk.before_stop(A, NODE))).is_back
    desk.heard(observed(1.0, A))
    empty = WorldSnapshot(taken_at_s=0.0)
    assert desk.configured(empty, {}, PlannerConfig()) == empty
    await desk.flush()
