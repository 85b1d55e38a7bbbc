"""A controller that sees its machine: what others hold, what strains it, and who has the GPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from contracts.config import ModelProfile, StrainConfig, WarmUpSchedule
from contracts.events import NodeObserved, PriorityClass
from contracts.messages import SettingsChanged
from contracts.readings import GpuReading, ProbeReading
from contracts.reasons import Reason
from contracts.world import GpuYield, Residency
from controller.sight import Sight
from tests.controller_stage import MIB, NODE, A, B, Stage


class Machine:
    """The stage's one LocalAI, seen from here: a card of 25 MB on which others hold some."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.others_bytes: int | None = 0
        self.utilization_ratio: float | None = None
        stage.sights = {NODE: Sight(NODE, clock=stage.clock, look=self.look, accelerator="cuda")}

    async def look(self, now_s: float) -> ProbeReading:
        report = await self.stage.server.report()
        ours = report.memory_used_bytes or 0
        return ProbeReading(
            at_s=now_s,
            gpus=(
                GpuReading(
                    uuid="GPU-a",
                    memory_total_bytes=25 * MIB,
                    memory_free_bytes=25 * MIB - ours - (self.others_bytes or 0),
                    used_by_others_bytes=self.others_bytes,
                    utilization_ratio=self.utilization_ratio,
                ),
            ),
        )


@pytest.fixture
async def machine() -> AsyncIterator[Machine]:
    machine = Machine(Stage())
    yield machine
    await machine.stage.close()


async def test_what_others_hold_is_what_the_probe_says(machine: Machine):
    stage = machine.stage
    machine.others_bytes = 7 * MIB
    await stage.start()
    world = await stage.world()
    node = world.nodes[NODE]
    assert (node.memory_total_bytes, node.used_by_others_bytes) == (25 * MIB, 7 * MIB)
    assert node.reading is not None
    assert [gpu.uuid for gpu in node.reading.gpus] == ["GPU-a"]
    seen = [event for event in await stage.happened() if isinstance(event, NodeObserved)]
    assert seen[-1].used_by_others_bytes == 7 * MIB


async def test_a_machine_that_works_hard_leaves_batches_one_slot(machine: Machine):
    stage = machine.stage
    stage.config = replace(
        stage.config,
        batch_slots=6,
        planner=replace(stage.config.planner, strain=StrainConfig(gpu_ratio=0.5)),
    )
    await stage.start()
    await stage.log(stage.received("r1", A))
    await stage.world()
    before = await stage.snapshots.limits(PriorityClass.BATCH)
    assert before is not None
    assert before.slots == 6
    machine.utilization_ratio = 1.0
    await stage.clock.advance(15.0)
    world = await stage.world()
    assert [strain.reason for strain in world.nodes[NODE].strains] == [Reason.GPU_BUSY]
    held = await stage.snapshots.limits(PriorityClass.BATCH)
    assert held is not None
    assert (held.slots, held.reason) == (1, Reason.GPU_BUSY)


async def test_the_gpu_is_handed_over_and_models_come_back(machine: Machine):
    stage = machine.stage
    await stage.start()
    await stage.want(A)
    await stage.beats(8.0)
    assert (await stage.world()).models[A].residency is Residency.HOT
    await stage.controls.set_gpu_yield(GpuYield(since_s=stage.now_s, note="a game"))
    await stage.to_controller.send(SettingsChanged(at_s=stage.now_s))
    await stage.beats(5.0)
    world = await stage.world()
    assert world.models[A].residency is Residency.COLD
    await stage.want(B)
    await stage.beats(2.0)
    (answer,) = [one for one in await stage.answers() if one.model == B]
    assert (answer.accepted, answer.reason) == (False, Reason.GPU_YIELDED)
    await stage.controls.set_gpu_yield(None)
    await stage.to_controller.send(SettingsChanged(at_s=stage.now_s))
    await stage.beats(40.0)
    assert (await stage.world()).models[A].residency is Residency.HOT
    assert Reason.GPU_YIELDED in {decision.reason for decision in await stage.decisions()}


async def test_quiet_hours_come_and_go_by_the_clock(machine: Machine):
    """The stage begins at 13:46:40 UTC; they are from 13:47 for a minute, but for B."""
    stage = machine.stage
    quiet = WarmUpSchedule(cron="47 13 * * *", keep_s=60.0, models=(B,), yields=True)
    stage.config = replace(stage.config, planner=replace(stage.config.planner, schedules=(quiet,)))
    await stage.start()
    await stage.want(A)
    await stage.beats(8.0)
    assert (await stage.world()).models[A].residency is Residency.HOT
    await stage.beats(25.0)
    world = await stage.world()
    assert world.quiet_until_s is not None
    assert world.models[A].residency is Residency.COLD
    assert world.models[B].residency is Residency.HOT
    await stage.beats(90.0)
    world = await stage.world()
    assert world.quiet_until_s is None
    assert world.models[A].residency is Residency.HOT
    gone = [d for d in await stage.decisions() if d.reason is Reason.GPU_YIELDED]
    assert (gone[0].subject, dict(gone[0].evidence)["note"]) == (A, "quiet hours")


async def test_targets_that_are_declared_hold_at_the_percentile_that_is_watched():
    stage = Stage()
    stage.config = replace(
        stage.config, planner=replace(stage.config.planner, strain=StrainConfig(percentile=80.0))
    )
    stage.with_profiles(ModelProfile(model=A, target_s=1.5))
    await stage.start()
    world = await stage.world()
    assert (world.slas[A].target_s, world.slas[A].percentile) == (1.5, 80.0)
    await stage.close()
    await asyncio.sleep(0)
