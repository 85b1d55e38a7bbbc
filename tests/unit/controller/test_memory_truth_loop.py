"""A whole controller on a machine whose memory is real: what it orders, and what it believes."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from contracts.events import ModelLoaded, ModelUnloaded
from contracts.memory import HOST, FootprintSource
from contracts.reasons import Reason
from contracts.world import Residency
from simulator.memory_ports import MemorySnapshotStore
from tests.controller_stage import NODE, A, B, C
from tests.machine_stage import CARD, GIB, OTHER, Machine


@pytest.fixture
async def stage() -> AsyncIterator[Machine]:
    one = Machine()
    yield one
    await one.close()


async def test_a_load_is_measured_by_place_and_kept(stage: Machine):
    stage.machine.estimates = {A: 7 * GIB}
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A)
    status = (await stage.world()).models[A]
    assert status.split == {CARD: 10 * GIB}
    assert status.footprint_bytes == 10 * GIB
    assert status.footprint_source is FootprintSource.MEASURED
    (loaded,) = [e for e in await stage.happened() if isinstance(e, ModelLoaded)]
    assert loaded.split == {CARD: 10 * GIB}
    await stage.beats(12.0)
    profile = await stage.profiles.get(A)
    assert profile is not None
    (measures,) = profile.measures
    assert measures.footprint()[CARD].value == 10 * GIB
    assert measures.footprint()[CARD].count == 1


async def test_what_was_measured_is_known_to_the_next_controller(stage: Machine):
    stage.machine.estimates = {}
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A)
    await stage.stop()
    stage.snapshots = MemorySnapshotStore()
    stage.machine.resident.clear()
    await stage.start("two")
    await stage.beats(6.0)
    status = (await stage.world()).models[A]
    assert (status.residency, status.footprint_bytes) == (Residency.COLD, 10 * GIB)
    assert status.footprint_source is FootprintSource.MEASURED


async def test_a_neighbour_that_grows_while_a_model_loads_is_outvoted(stage: Machine):
    await stage.start()
    await stage.beats(6.0)
    for grown in (4 * GIB, 0, 0):
        stage.machine.grows_at_load = {CARD: grown}
        await stage.load(C)
        stage.machine.grows_at_load = {}
        stage.machine.others.clear()
        await stage.operator_unload(C)
        await stage.beats(12.0)
    status = (await stage.world()).models[C]
    assert status.split == {CARD: 3 * GIB}


@pytest.mark.case("P007")
async def test_room_is_made_first_and_the_load_waits_until_it_is_seen(stage: Machine):
    """B does not fit beside A and C; of these A goes."""
    stage.machine.cards[CARD] = 20 * GIB
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A, C, B)
    happened = [(what, who) for _, what, who in stage.calls()]
    assert happened.index(("unloaded", A)) < happened.index(("load_started", B))
    assert stage.machine.resident == {B, C}
    assert stage.machine.overcommits == []


@pytest.mark.case("P004")
async def test_an_unload_that_lies_frees_nothing(stage: Machine):
    """The model that waits is not sent to the card until the memory is there."""
    stage.machine.lying = {A}
    stage.machine.cards[CARD] = 16 * GIB
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A)
    await stage.log(stage.received("r", B))
    await stage.want(B, "r")
    await stage.beats(20.0, waiting={B: 1})
    assert A not in stage.machine.resident
    assert stage.begun(B) == 0
    world = await stage.world()
    node = world.nodes[NODE]
    assert [one.model for one in node.unseen] == [A]
    assert node.used_by_others_bytes == 10 * GIB
    assert world.models[A].residency is Residency.COLD
    said = [d for d in await stage.decisions() if d.reason is Reason.MEMORY_NOT_BACK]
    assert dict(said[0].evidence) == {
        "node": NODE,
        "expected_mb": 10 * 1024,
        "freed_mb": 0,
        "waited_s": 10.0,
    }
    (unloaded,) = [e for e in await stage.happened() if isinstance(e, ModelUnloaded)]
    assert not unloaded.memory_seen
    stage.machine.let_go(A)
    await stage.beats(20.0, waiting={B: 1})
    assert B in stage.machine.resident
    assert (await stage.world()).nodes[NODE].unseen == ()
    assert stage.machine.overcommits == []


async def test_memory_of_a_stopped_model_is_given_up_at_last_and_counted(stage: Machine):
    stage.machine.lying = {A}
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A)
    await stage.operator_unload(A)
    await stage.beats(30.0)
    node = (await stage.world()).nodes[NODE]
    assert len(node.unseen) == 1
    assert node.leaked_bytes == 0
    await stage.beats(620.0)
    node = (await stage.world()).nodes[NODE]
    assert node.unseen == ()
    assert node.leaked_bytes == 10 * GIB
    assert node.used_by_others_bytes == 10 * GIB


@pytest.mark.parametrize("fault", ["hanging", "refusing"])
async def test_a_stop_that_fails_leaves_the_model_counted(stage: Machine, fault: str):
    getattr(stage.machine, fault).add(A)
    stage.machine.cards[CARD] = 16 * GIB
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A)
    await stage.log(stage.received("r", B))
    await stage.want(B, "r")
    await stage.beats(60.0, waiting={B: 1})
    assert stage.begun(B) == 0
    assert stage.machine.overcommits == []
    getattr(stage.machine, fault).clear()
    await stage.beats(120.0, waiting={B: 1})
    assert B in stage.machine.resident
    assert stage.machine.overcommits == []


async def test_a_model_that_is_larger_than_was_thought_is_remembered_as_such(stage: Machine):
    """It fits beside nobody, says a failed load, so that the next one makes room first."""
    stage.machine.estimates = {A: 10 * GIB, B: 2 * GIB, C: 3 * GIB}
    stage.machine.cards[CARD] = 17 * GIB
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A)
    await stage.log(stage.received("r", B))
    await stage.want(B, "r")
    await stage.beats(7.0, waiting={B: 1})
    status = (await stage.world()).models[B]
    assert status.residency is Residency.FAILED
    assert status.out_of_memory_bytes == 7 * GIB
    assert status.needed_bytes > 7 * GIB
    assert A in stage.machine.resident, "nothing goes before it is tried again"
    await stage.beats(20.0, waiting={B: 1})
    assert B in stage.machine.resident
    assert A not in stage.machine.resident
    status = (await stage.world()).models[B]
    assert status.out_of_memory_bytes is None
    assert status.split == {CARD: 8 * GIB}
    assert len(stage.machine.overcommits) == 1


async def test_a_model_that_fails_on_an_empty_card_is_refused_for_a_while(stage: Machine):
    stage.machine.estimates = {C: 1 * GIB}
    stage.machine.splits[C] = {CARD: 30 * GIB}
    await stage.start()
    await stage.beats(6.0)
    await stage.load(C, seconds=60.0)
    assert stage.begun(C) == 1
    status = (await stage.world()).models[C]
    assert status.out_of_memory_bytes == 24 * GIB
    await stage.answers()
    await stage.want(C, "again")
    await stage.beats(2.0)
    answer = (await stage.answers())[-1]
    assert (answer.accepted, answer.reason) == (False, Reason.OUT_OF_MEMORY)
    await stage.beats(1800.0)
    assert (await stage.world()).models[C].out_of_memory_bytes is None


async def test_another_program_gets_what_it_needs_and_the_models_come_back(stage: Machine):
    """The one that is missed least goes for it; it is loaded again when there is room."""
    stage.machine.cards[CARD] = 22 * GIB
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A, B, C)
    assert stage.machine.resident == {A, B, C}
    stage.machine.others[CARD] = 4 * GIB
    await stage.beats(15.0)
    assert stage.machine.resident == {B, C}, "A was used longest ago"
    assert (await stage.world()).models[A].yielded == 1
    said = [d for d in await stage.decisions() if d.reason is Reason.OTHERS_NEED]
    assert said[0].subject == A
    await stage.beats(60.0)
    assert stage.machine.resident == {B, C}
    stage.machine.others.clear()
    await stage.beats(40.0)
    assert stage.machine.resident == {A, B, C}
    assert any(d.reason is Reason.ROOM_BACK for d in await stage.decisions())


async def test_a_busy_model_never_goes_for_another_program(stage: Machine):
    stage.machine.cards[CARD] = 22 * GIB
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A, B, C)
    stage.machine.others[CARD] = 4 * GIB
    stage.machine.busy = {A}
    await stage.log(stage.received("long", A), stage.dispatched("long", A, cold=False))
    await stage.beats(20.0, in_flight={A: 1})
    assert A in stage.machine.resident
    assert B not in stage.machine.resident


@pytest.mark.case("P032")
async def test_two_models_that_were_never_measured_load_one_after_the_other(stage: Machine):
    await stage.start()
    await stage.beats(6.0)
    for name in (B, C):
        await stage.log(stage.received(f"r-{name}", name))
        await stage.want(name, f"r-{name}")
    await stage.beats(20.0, waiting={B: 1, C: 1})
    times = {(what, who): at for at, what, who in stage.calls()}
    assert times["load_started", C] >= times["loaded", B]
    world = await stage.world()
    assert world.models[B].split == {CARD: 8 * GIB}
    assert world.models[C].split == {CARD: 3 * GIB}


async def test_a_model_fits_only_where_every_card_has_room():
    stage = Machine(
        {A: {CARD: 10 * GIB}, B: {CARD: 4 * GIB, OTHER: 4 * GIB}, C: {OTHER: 3 * GIB}},
        cards={CARD: 12 * GIB, OTHER: 12 * GIB},
    )
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A, C)
    world = await stage.world()
    assert world.models[A].split == {CARD: 10 * GIB}
    # 11 of 24 are free, but only 2 of those on the first card
    await stage.learn(B, {CARD: 4 * GIB, OTHER: 4 * GIB})
    await stage.load(B)
    assert stage.machine.resident == {B, C}
    assert stage.machine.overcommits == []
    await stage.close()


async def test_models_on_the_cpu_take_nothing_of_the_card():
    stage = Machine(
        {A: {CARD: 10 * GIB}, B: {HOST: 8 * GIB}, C: {HOST: 9 * GIB}},
        cards={CARD: 12 * GIB},
        machine={"host_bytes": 16 * GIB},
        estimates={A: 10 * GIB},
    )
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A, B)
    assert stage.machine.resident == {A, B}
    world = await stage.world()
    assert world.models[B].split == {HOST: 8 * GIB}
    assert world.models[B].on_host
    await stage.learn(C, {HOST: 9 * GIB})
    await stage.load(C)
    assert stage.machine.resident == {A, C}, "host RAM is a budget of its own"
    await stage.close()
