"""Field reports about memory, replayed on a machine whose memory is real."""

from __future__ import annotations

import pytest
import structlog

from contracts.config import ModelProfile
from contracts.ids import ModelId
from contracts.memory import HOST
from contracts.reasons import Reason
from contracts.world import Residency
from tests.controller_stage import NODE, A, B, C
from tests.machine_stage import CARD, GIB, Machine

MIB = 1024**2
D = ModelId("d")


@pytest.mark.case("P008")
async def test_bytes_are_counted_and_not_models():
    """A limit of four models would let 170 and 29 GiB be resident on 192 less its reserve."""
    stage = Machine(
        {A: {CARD: 170 * GIB}, B: {CARD: 29 * GIB}},
        cards={CARD: 192 * GIB},
        machine={"model_limit": 4},
    )
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A, B)
    assert stage.machine.resident == {B}
    assert stage.machine.overcommits == []
    await stage.close()


@pytest.mark.case("P016")
async def test_nobody_goes_for_a_model_that_can_never_fit():
    stage = Machine(
        {A: {CARD: 2 * GIB}, B: {CARD: 2 * GIB}, C: {CARD: 12 * GIB}}, cards={CARD: 8 * GIB}
    )
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A, B)
    await stage.answers()
    await stage.log(stage.received("r", C))
    await stage.want(C, "r")
    await stage.beats(30.0, waiting={C: 1})
    answer = (await stage.answers())[-1]
    assert (answer.accepted, answer.reason) == (False, Reason.NEVER_FITS)
    assert stage.machine.resident == {A, B}
    assert stage.begun(C) == 0
    await stage.close()


@pytest.mark.case("P017")
async def test_a_model_of_unknown_size_evicts_nobody_and_is_measured():
    chat, tiny = A, B
    stage = Machine({chat: {CARD: 9 * GIB}, tiny: {CARD: 600 * MIB}}, estimates={chat: 9 * GIB})
    await stage.start()
    await stage.beats(6.0)
    await stage.load(chat)
    assert (await stage.world()).models[tiny].footprint_bytes is None
    await stage.load(tiny)
    assert stage.machine.resident == {chat, tiny}
    assert (await stage.world()).models[tiny].split == {CARD: 600 * MIB}
    await stage.close()


@pytest.mark.case("P018")
async def test_on_a_machine_without_gpus_ram_is_the_budget():
    stage = Machine(
        {A: {HOST: 4 * GIB}, B: {HOST: 5 * GIB}},
        cards={},
        machine={"host_bytes": 32 * GIB},
        reserve_ratio=0.2,
    )
    await stage.start()
    await stage.beats(6.0)
    for _ in range(10):
        await stage.load(A, B, seconds=7.0)
    assert stage.begun(A) == stage.begun(B) == 1
    assert stage.machine.resident == {A, B}
    await stage.close()


@pytest.mark.case("P019")
@pytest.mark.parametrize("unified", [False, True])
async def test_a_carve_out_is_budgeted_by_itself_and_page_cache_is_free(unified: bool):
    """96 GiB for the GPU, and of the host's RAM hardly anything free."""
    stage = Machine(
        {A: {CARD: 24 * GIB}, B: {CARD: 24 * GIB}},
        cards={CARD: 96 * GIB},
        machine={"host_bytes": 32 * GIB, "unified": unified},
    )
    stage.machine.others[HOST] = 12 * GIB
    await stage.start()
    await stage.beats(6.0)
    await stage.load(A, B)
    assert stage.machine.resident == {A, B}
    kinds = {place.kind.value for place in (await stage.world()).nodes[NODE].places}
    assert kinds == ({"unified"} if unified else {"gpu", "host"})
    await stage.close()


@pytest.mark.case("P021")
async def test_what_each_cycle_leaves_behind_is_no_part_of_the_model():
    stage = Machine({A: {CARD: 3000 * MIB}}, cards={CARD: 24 * GIB})
    stage.machine.leaks_bytes = 300 * MIB
    await stage.start()
    await stage.beats(6.0)
    for _ in range(10):
        await stage.load(A, seconds=7.0)
        await stage.operator_unload(A)
    world = await stage.world()
    assert world.models[A].footprint_bytes == pytest.approx(3000 * MIB, rel=0.1)
    node = world.nodes[NODE]
    assert node.used_by_others_bytes == 3000 * MIB, "free is what the probe says"
    assert node.leaked_bytes > 2000 * MIB
    await stage.close()


@pytest.mark.case("P025")
async def test_the_one_that_helps_goes_and_not_the_oldest():
    tiny, chat, wanted = A, B, C
    stage = Machine(
        {tiny: {CARD: 100 * MIB}, chat: {CARD: 13 * GIB}, wanted: {CARD: 5 * GIB}},
        cards={CARD: 16 * GIB},
    )
    await stage.start()
    await stage.beats(6.0)
    await stage.load(tiny)
    await stage.beats(60.0)
    await stage.load(chat)
    await stage.beats(120.0)
    await stage.load(wanted)
    assert stage.machine.resident == {tiny, wanted}
    await stage.close()


@pytest.mark.case("P026")
async def test_a_preload_list_that_is_too_large_does_not_thrash():
    """Four models of 22 GiB are wanted at start; with its reserve the card holds three."""
    names = (A, B, C, D)
    stage = Machine(
        {name: {CARD: 22 * GIB} for name in names},
        cards={CARD: 96 * GIB},
        reserve_ratio=0.2,
    )
    stage.with_profiles(*(ModelProfile(model=name, preload=True) for name in names))
    with structlog.testing.capture_logs() as logged:
        await stage.start()
        await stage.beats(600.0)
    gone = [who for _, what, who in stage.calls() if what == "unloaded"]
    assert len(gone) <= 1
    assert all(stage.begun(name) == 1 for name in names if name in gone)
    assert len(stage.machine.resident) == 3
    assert [line for line in logged if line["event"] == "kept_models_exceed_memory"]
    await stage.close()


@pytest.mark.case("P033")
async def test_nothing_is_unloaded_for_idleness_while_a_load_runs():
    idle, wanted = B, A
    stage = Machine(policy="idle-timeout", idle_timeout_s=20.0, prefetch=False)
    await stage.start()
    await stage.beats(6.0)
    await stage.load(idle)
    loaded_at = next(at for at, what, who in stage.calls() if (what, who) == ("loaded", idle))
    # the idle time of the first is over while the second loads
    await stage.beats(loaded_at + 17.0 - (stage.now_s - 1_000_000.0))
    await stage.log(stage.received("r", wanted))
    await stage.want(wanted, "r")
    await stage.beats(15.0, waiting={wanted: 1})
    times = {(what, who): at for at, what, who in stage.calls()}
    assert times["load_started", wanted] < times["unloaded", idle]
    assert times["unloaded", idle] >= times["loaded", wanted]
    assert (await stage.world()).models[wanted].residency is Residency.HOT
    await stage.close()
