"""A configuration that changes while a controller leads."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.config import ModelProfile
from contracts.world import Mode, Residency
from tests.controller_stage import LEASE_S, NODE, A, Stage


@pytest.fixture
async def stage():
    stage = Stage()
    yield stage
    await stage.close()


async def test_mode_targets_and_pins_hold_at_once_and_the_term_goes_on(stage):
    loop = await stage.start()
    await stage.clock.advance(2.0)
    before = await stage.snapshots.routing()
    assert (before.mode, before.models[A].pinned) == (Mode.ACTIVE, False)
    loop.reconfigure(
        replace(
            stage.config,
            active_by_default=False,
            profiles={A: ModelProfile(model=A, pinned=True, target_s=0.5)},
        )
    )
    world = await stage.world()
    assert world.mode is Mode.OBSERVE
    assert world.models[A].pinned
    assert world.slas[A].target_s == 0.5
    after = await stage.snapshots.routing()
    assert after.token == before.token, "nobody lost the lease over it"
    assert after.mode is Mode.OBSERVE


async def test_a_load_that_runs_goes_on(stage):
    loop = await stage.start()
    await stage.clock.advance(2.0)
    await stage.want(A)
    await stage.clock.advance(2.0)
    loop.reconfigure(replace(stage.config, load_timeout_s=1.0))
    await stage.clock.advance(5.0)
    assert [what for _, what, _ in stage.calls()] == ["load_started", "loaded"]
    assert (await stage.world()).models[A].residency is Residency.HOT


async def test_one_that_stands_by_leads_by_the_new_one_later(stage):
    await stage.start("one")
    two = await stage.start("two")
    two.reconfigure(replace(stage.config, active_by_default=False, lease_s=1.0, nodes=()))
    await stage.stop("one")
    await stage.clock.advance(LEASE_S)
    assert two.leads()
    assert (await stage.world()).mode is Mode.OBSERVE
    assert NODE in (await stage.world()).nodes
