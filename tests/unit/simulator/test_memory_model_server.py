from __future__ import annotations

import asyncio

import pytest

from contracts.errors import Busy, Permanent, Transient
from contracts.ids import ModelId
from simulator.memory_ports import MemoryModelServer, VirtualClock

A, B = ModelId("a"), ModelId("b")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def server(clock: VirtualClock) -> MemoryModelServer:
    return MemoryModelServer(
        clock,
        {A: 5.0, B: 2.0},
        footprint_bytes={A: 100, B: 40},
        aliases={"best": A},
        memory_total_bytes=1000,
        model_limit=3,
    )


def said(server: MemoryModelServer) -> list[tuple[float, str, str]]:
    return [(call.at_s, call.what, call.model) for call in server.calls]


async def test_a_load_takes_its_time_and_holds_its_memory_from_the_start(clock, server):
    loading = asyncio.create_task(server.load(A))
    await clock.advance(4.9)
    assert not loading.done()
    assert server.used_bytes == 100
    assert (await server.report()).resident == ()
    await clock.advance(0.1)
    await loading
    report = await server.report()
    assert (report.resident, report.memory_used_bytes, report.model_limit) == ((A,), 100, 3)
    assert await server.is_busy(A) is False
    await server.load(A)
    assert said(server) == [(0.0, "load_started", A), (5.0, "loaded", A)]


async def test_one_load_for_all_who_ask(clock, server):
    async with asyncio.TaskGroup() as group:
        for _ in range(3):
            group.create_task(server.load(A))
        await clock.advance(5.0)
    assert [what for _, what, _ in said(server)] == ["load_started", "loaded"]


async def test_two_models_load_side_by_side(clock, server):
    async with asyncio.TaskGroup() as group:
        group.create_task(server.load(A))
        group.create_task(server.load(B))
        await clock.advance(5.0)
    assert server.peak_bytes == 140


@pytest.mark.parametrize("who", ["first", "second"])
async def test_a_caller_that_leaves_kills_the_load_for_all_and_it_cools_down(clock, server, who):
    first = asyncio.create_task(server.load(A))
    await clock.advance(1.0)
    second = asyncio.create_task(server.load(A))
    await clock.advance(1.0)
    leaver, other = (first, second) if who == "first" else (second, first)
    leaver.cancel()
    await clock.advance(0.0)
    with pytest.raises(asyncio.CancelledError):
        await leaver
    with pytest.raises(Transient):
        await other
    with pytest.raises(Transient) as refused:
        await server.load(A)
    assert refused.value.retry_after_s == pytest.approx(10.0)
    assert server.used_bytes == 0


async def test_scripted_failures_cool_down_longer_each_time(clock, server):
    server.fail_loads(A, Transient("first"), Transient("second"))
    for text, cooldown_s in (("first", 10.0), ("second", 20.0)):
        with pytest.raises(Transient, match=text):
            await clock.run(server.load(A))
        with pytest.raises(Transient) as refused:
            await server.load(A)
        assert refused.value.retry_after_s == pytest.approx(cooldown_s)
        await clock.advance(cooldown_s)
    await clock.run(server.load(A))
    assert (await server.report()).resident == (A,)


async def test_an_unknown_model_is_refused(server):
    with pytest.raises(Permanent):
        await server.load(ModelId("unknown"))
    assert await server.models() == (A, B)
    assert await server.aliases() == {"best": A}


async def test_unloading(clock, server):
    await server.unload(A)
    await clock.run(server.load(A))
    server.busy.add(A)
    assert await server.is_busy(A) is True
    with pytest.raises(Busy):
        await server.unload(A)
    server.busy.clear()
    server.unload_s = 0.5
    await clock.run(server.unload(A))
    assert clock.monotonic_s() == 5.5
    assert await server.is_busy(A) is None


async def test_a_dead_process_stays_listed_until_it_is_unloaded(clock, server):
    await clock.run(server.load(A))
    server.kill_process(A)
    await server.load(A)
    assert (await server.report()).resident == (A,)
    assert server.used_bytes == 0
    assert await server.is_busy(A) is None
    await server.unload(A)
    await clock.run(server.load(A))
    assert await server.is_busy(A) is False


async def test_while_it_is_away_every_call_fails_and_a_running_load_with_it(clock, server):
    loading = asyncio.create_task(server.load(A))
    await clock.advance(1.0)
    server.fault = Transient("connection refused")
    for call in (server.models(), server.report(), server.is_busy(A), server.unload(A)):
        with pytest.raises(Transient):
            await call
    await clock.advance(5.0)
    with pytest.raises(Transient):
        await loading
    server.fault = None
    assert await server.estimate_footprint_bytes(A) == 100
    assert await server.estimate_footprint_bytes(ModelId("unknown")) is None
