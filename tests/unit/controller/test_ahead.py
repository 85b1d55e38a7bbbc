"""What a leading controller does ahead of demand: warm files, schedules, preloads, groups."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from contracts.config import ModelProfile, WarmConfig, WarmUpSchedule
from contracts.groups import GroupConfig
from contracts.ids import ModelId
from contracts.modalities import Modality
from contracts.reasons import Reason
from contracts.world import HostMemory
from simulator.memory_ports import MemoryWeightCache
from tests import worlds
from tests.controller_stage import NODE, START_S, A, B, C, Stage

MIB = worlds.MIB
FILES = {"a.gguf": 64 * MIB, "b.gguf": 64 * MIB, "c.gguf": 64 * MIB}
MEMORY = HostMemory(total_bytes=4096 * MIB, available_bytes=4000 * MIB)


class Filed(Stage):
    """The stage with LocalAI's models folder mounted."""

    def __init__(self, **planner: object) -> None:
        super().__init__(**planner)
        self.cache = MemoryWeightCache(self.clock, FILES, memory=MEMORY)
        self.weights = {NODE: self.cache}
        self.with_profiles(
            *(ModelProfile(model=name, weights=(f"{name}.gguf",)) for name in (A, B, C))
        )


async def serve(stage: Stage, name: ModelId) -> None:
    """Somebody asks for it, waits for its load and is answered."""
    request = f"r-{name}"
    await stage.want(name, request)
    await stage.beats(10.0, waiting={name: 1})
    await stage.log(
        stage.received(request, name),
        stage.dispatched(request, name, cold=True),
        worlds.completed(request, name, stage.now_s),
    )
    await stage.beats(1.0)


@pytest.fixture
async def filed() -> AsyncIterator[Filed]:
    stage = Filed()
    yield stage
    await stage.close()


@pytest.fixture
async def stage() -> AsyncIterator[Stage]:
    stage = Stage()
    yield stage
    await stage.close()


async def test_what_was_used_and_went_is_read_ahead_and_shown(filed: Filed):
    await filed.start()
    for name in (A, B, C):  # two fit: A goes for C
        await serve(filed, name)
    assert filed.server.resident == {B, C}
    await filed.beats(40.0)
    world = await filed.world()
    assert world.warmth[A].cached_ratio == 1.0
    assert world.hosts == {NODE: MEMORY}
    decisions = await filed.decisions()
    assert [d.subject for d in decisions if d.reason is Reason.WARM] == [A]


async def test_switched_off_at_run_time_nothing_more_is_read(filed: Filed):
    loop = await filed.start()
    loop.reconfigure(replace(filed.config, planner=replace(filed.config.planner, warm=None)))
    await filed.want(A)
    await filed.beats(8.0, waiting={A: 1})
    await filed.beats(40.0)
    assert set(filed.cache.cached.values()) == {0}


async def test_nothing_is_read_where_decisions_are_not_carried_out():
    stage = Filed(warm=WarmConfig(strategy="lfu"))
    stage.config = replace(stage.config, active_by_default=False)
    await stage.start()
    await stage.log(stage.received("r1", A), worlds.completed("r1", A, stage.now_s))
    await stage.beats(20.0)
    decisions = await stage.decisions()
    assert [d.subject for d in decisions if d.reason is Reason.WARM] == [A]
    assert set(stage.cache.cached.values()) == {0}
    await stage.close()


async def test_a_scheduled_model_is_there_when_its_window_begins_and_stays(stage: Stage):
    # The stage begins at 13:46:40 of some day; the window at 13:48 lasts three minutes.
    rule = WarmUpSchedule(cron="48 13 * * *", models=("b",), keep_s=180.0)
    stage.config = replace(stage.config, planner=replace(stage.config.planner, schedules=(rule,)))
    await stage.start()
    starts_s = START_S + 80.0
    await stage.beats(50.0)
    assert stage.server.resident == set()
    await stage.beats(starts_s - stage.now_s)
    assert stage.server.resident == {B}
    # Two others are asked for, of which one has room: the scheduled one stays while it lasts.
    await serve(stage, A)
    await stage.beats(70.0)
    await serve(stage, C)
    assert stage.server.resident == {B, C}
    assert (await stage.world()).scheduled[B].starts_at_s == starts_s


async def test_models_that_localais_files_mark_are_loaded_at_start():
    stage = Stage()

    async def declared(_node: object, model: ModelId) -> ModelProfile | None:
        return ModelProfile(model=model, preload=True) if model in (A, B) else None

    stage.declared = declared
    stage.config = replace(stage.config, preload=(B,))
    await stage.start()
    await stage.beats(20.0)
    assert stage.server.resident == {B}
    await stage.close()


async def test_a_group_evicts_within_itself_and_gateways_know_it(stage: Stage):
    image = GroupConfig(name="image_generation", memory_bytes=15 * MIB)
    stage.config = replace(
        stage.config, planner=replace(stage.config.planner, groups={image.name: image})
    )
    stage.with_profiles(
        ModelProfile(model=A, modality=Modality.IMAGE),
        ModelProfile(model=B, modality=Modality.IMAGE),
    )
    await stage.start()
    await serve(stage, A)
    await serve(stage, B)
    # 25 MB have room for both, the group has not.
    assert stage.server.resident == {B}
    table = await stage.snapshots.routing()
    assert table is not None
    assert [table.models[name].group for name in (A, C)] == ["image_generation", ""]
