"""The ``ModelServer`` port in memory, and over HTTP against the emulated LocalAI."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from adapters.clock import ScaledClock
from adapters.localai import LocalAIServer
from contracts.config import NodeConfig
from contracts.errors import Permanent, Transient
from contracts.ids import ModelId, NodeId
from contracts.ports import ModelServer
from simulator.memory_ports import MemoryModelServer
from tests.emulator_server import RunningEmulator

SCALE = 50.0
MIB = 1024**2
A, B, BROKEN = ModelId("a"), ModelId("b"), ModelId("broken")
LOAD_S = {A: 4.0, B: 2.0, BROKEN: 1.0}


@dataclass(frozen=True)
class Subject:
    """One implementation, and how many loads it has begun so far."""

    server: ModelServer
    emulator: RunningEmulator | None

    def loads_begun(self, model: ModelId) -> int:
        if self.emulator is not None:
            return len(self.emulator.events("load_started", model=model))
        assert isinstance(self.server, MemoryModelServer)
        return sum(
            call.what == "load_started" and call.model == model for call in self.server.calls
        )

    async def load_begins(self, model: ModelId, *, count: int = 1) -> None:
        for _ in range(5000):
            if self.loads_begun(model) >= count:
                return
            await asyncio.sleep(0.002)
        raise AssertionError(f"no load of {model} began")


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    models = [
        {"name": name, "footprint_mb": 100, "load_s": load_s} for name, load_s in LOAD_S.items()
    ]
    models[0]["aliases"] = ["al"]
    with RunningEmulator(
        models, scale=SCALE, capacity_mb=1000, model_limit=3, exact_load_times=True
    ) as running:
        yield running


@pytest.fixture(params=["memory", "emulator"])
async def subject(request: pytest.FixtureRequest) -> AsyncIterator[Subject]:
    clock = ScaledClock(SCALE)
    if request.param == "memory":
        memory = MemoryModelServer(
            clock,
            LOAD_S,
            footprint_bytes=dict.fromkeys(LOAD_S, 100 * MIB),
            aliases={"al": A},
            memory_total_bytes=1000 * MIB,
            model_limit=3,
        )
        memory.fail_loads(BROKEN, *[Transient("no memory", retry_after_s=10.0)] * 5)
        yield Subject(memory, None)
        return
    running: RunningEmulator = request.getfixturevalue("emulator")
    running.arm({"kind": "load_fail", "model": BROKEN, "times": 5})
    config = NodeConfig(node=NodeId("n"), url=running.url)
    async with LocalAIServer(config, clock) as server:
        yield Subject(server, running)


async def test_it_lists_models_without_aliases(subject):
    assert await subject.server.models() == (A, B, BROKEN)
    assert await subject.server.aliases() == {"al": A}


async def test_a_load_is_seen_in_report_and_monitor(subject):
    assert await subject.server.is_busy(A) is None
    await subject.server.load(A)
    report = await subject.server.report()
    assert report.resident == (A,)
    assert report.memory_total_bytes == 1000 * MIB
    assert report.memory_used_bytes == 100 * MIB
    assert report.model_limit == 3
    assert await subject.server.is_busy(A) is False


async def test_a_second_load_is_no_second_load(subject):
    await subject.server.load(A)
    await subject.server.load(A)
    assert subject.loads_begun(A) == 1


async def test_one_load_for_all_who_ask_and_side_by_side_for_different_models(subject):
    await asyncio.gather(subject.server.load(A), subject.server.load(A), subject.server.load(B))
    assert (subject.loads_begun(A), subject.loads_begun(B)) == (1, 1)
    assert (await subject.server.report()).resident == (A, B)


async def test_what_loads_holds_memory_and_is_not_yet_resident(subject):
    loading = asyncio.create_task(subject.server.load(A))
    await subject.load_begins(A)
    report = await subject.server.report()
    assert (report.resident, report.memory_used_bytes) == ((), 100 * MIB)
    await loading


async def test_an_unload_and_one_of_what_is_not_loaded(subject):
    await subject.server.load(A)
    await subject.server.unload(A)
    await subject.server.unload(A)
    report = await subject.server.report()
    assert (report.resident, report.memory_used_bytes) == ((), 0)


@pytest.mark.parametrize("name", ["nope", "al"])
async def test_a_name_that_is_no_model_is_refused_for_good(subject, name):
    with pytest.raises(Permanent):
        await subject.server.load(ModelId(name))
    assert subject.loads_begun(ModelId(name)) == 0


async def test_a_failed_load_cools_down_and_says_how_long(subject):
    with pytest.raises(Transient):
        await subject.server.load(BROKEN)
    with pytest.raises(Transient) as cooling:
        await subject.server.load(BROKEN)
    assert cooling.value.retry_after_s is not None
    assert 0.0 < cooling.value.retry_after_s <= 10.0
    assert subject.loads_begun(BROKEN) == 1


async def test_cancelling_a_load_kills_it_and_it_cools_down(subject):
    loading = asyncio.create_task(subject.server.load(A))
    await subject.load_begins(A)
    loading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loading
    for _ in range(1000):
        if not (await subject.server.report()).memory_used_bytes:
            break
        await asyncio.sleep(0.002)
    assert (await subject.server.report()).memory_used_bytes == 0
    with pytest.raises(Transient) as cooling:
        await subject.server.load(A)
    assert cooling.value.retry_after_s is not None


async def test_its_own_estimate(subject):
    assert await subject.server.estimate_footprint_bytes(A) == 100 * MIB


async def test_a_resident_model_is_warmed_without_another_load(subject):
    await subject.server.load(A)
    assert await subject.server.warm(A) is True
    assert subject.loads_begun(A) == 1
    assert await subject.server.is_busy(A) is False


async def test_it_tells_when_it_began_and_what_it_is(subject):
    began_s = await subject.server.started_at_s()
    assert began_s is not None
    assert await subject.server.started_at_s() == began_s
    facts = await subject.server.facts()
    again = await subject.server.facts(fresh=True)
    assert (again.capabilities, again.peers) == (facts.capabilities, facts.peers)
