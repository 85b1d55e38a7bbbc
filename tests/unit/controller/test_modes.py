"""Modes ``shadow`` and ``ab`` in a controller that runs: what is ordered, and what is told."""

from __future__ import annotations

import pytest

from contracts.messages import SettingsChanged
from contracts.world import Mode
from controller.policies.registry import POLICIES
from tests.controller_stage import RECEIVES, A, B, C, Stage


@pytest.fixture
async def stage():
    made = Stage(policy="gdsf")
    yield made
    await made.close()


async def change(stage, mode):
    await stage.controls.set_mode(mode)
    await stage.to_controller.send(SettingsChanged(at_s=stage.now_s))
    await stage.clock.advance(RECEIVES)


async def ask(stage, *models):
    """Each is asked for half a minute after the one before; it is served at once."""
    for number, model in enumerate(models):
        await stage.log(stage.received(f"r{stage.now_s}-{number}", model))
        await stage.log(stage.dispatched(f"r{stage.now_s}-{number}", model, cold=False))
        await stage.beats(30.0)


async def test_in_the_shadow_nothing_is_ordered_and_every_policy_plays(stage):
    await stage.start()
    await change(stage, Mode.SHADOW)
    await ask(stage, A, B, C, A)
    await stage.beats(40.0)
    assert stage.calls() == []
    told = await stage.snapshots.baselines()
    assert told["policies"] == {"configured:gdsf": 1.0, "deciding:gdsf": 1.0}
    assert {name for name in told if name.startswith("shadow:")} == {
        f"shadow:{name}" for name in POLICIES
    }
    assert told["shadow:lru"]["arrivals"] == 4
    # two of the three fit, and each is cold at first
    assert told["shadow:lru"]["cold_starts"] >= 3
    assert told["shadow:lru"]["loads"] >= 3


async def test_two_policies_take_turns_and_orders_are_carried_out(stage):
    await stage.start()
    await change(stage, Mode.AB)
    decided = set()
    for _ in range(3):
        await stage.clock.advance(1800.0)
        told = await stage.snapshots.baselines()
        decided |= {name for name in told["policies"] if name.startswith("deciding:")}
        await stage.want(C, f"w{stage.now_s}")
        await stage.beats(10.0, waiting={C: 1})
    assert decided == {"deciding:gdsf", "deciding:lru"}
    assert stage.server.resident == {C}


async def test_turns_are_counted_from_what_gateways_say(stage):
    await stage.start()
    await change(stage, Mode.AB)
    for _ in range(8):
        await stage.clock.advance(900.0)
        await ask(stage, A)
    figures = (await stage.snapshots.baselines())["ab:lru"]
    assert figures["arrivals"] + figures["our_arrivals"] > 0
    assert figures["late"] == figures["our_late"] == 0
