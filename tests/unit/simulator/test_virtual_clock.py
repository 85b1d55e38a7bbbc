from __future__ import annotations

import asyncio

import pytest

from simulator.clock import VirtualClock


async def _note_after(clock: VirtualClock, delay_s: float, log: list[tuple[float, str]], name: str):
    await clock.sleep(delay_s)
    log.append((clock.monotonic_s(), name))


async def test_sleepers_wake_in_order_of_their_deadlines_at_their_own_time():
    clock = VirtualClock(start_s=1000.0)
    log: list[tuple[float, str]] = []
    async with asyncio.TaskGroup() as tasks:
        for delay_s, name in ((3.0, "late"), (1.0, "early"), (2.0, "middle")):
            tasks.create_task(_note_after(clock, delay_s, log, name))
        await clock.advance(10.0)
        assert log == [(1.0, "early"), (2.0, "middle"), (3.0, "late")]
        assert clock.now_s() == 1010.0
        assert clock.monotonic_s() == 10.0


async def test_a_sleep_that_begins_on_the_way_is_woken_in_the_same_advance():
    clock = VirtualClock()
    beats: list[float] = []

    async def beat():
        while True:
            await clock.sleep(1.0)
            beats.append(clock.monotonic_s())

    task = asyncio.create_task(beat())
    await clock.advance(3.5)
    assert beats == [1.0, 2.0, 3.0]
    task.cancel()


async def test_nobody_wakes_before_time():
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(5.0))
    await clock.advance(4.9)
    assert not task.done()
    assert clock.next_alarm_in_s == pytest.approx(0.1)
    await clock.advance(0.2)
    assert task.done()
    assert clock.next_alarm_in_s is None


async def test_a_cancelled_sleeper_leaves_no_alarm():
    clock = VirtualClock()
    task = asyncio.create_task(clock.sleep(5.0))
    await clock.advance(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert clock.next_alarm_in_s is None


async def test_a_timeout_fires_in_virtual_time_only():
    clock = VirtualClock()

    async def waits():
        async with clock.timeout(2.0):
            await clock.sleep(60.0)

    task = asyncio.create_task(waits())
    await clock.advance(1.9)
    assert not task.done()
    await clock.advance(0.2)
    with pytest.raises(TimeoutError):
        await task
    assert clock.monotonic_s() == pytest.approx(2.1)


async def test_a_timeout_that_is_not_reached_does_nothing():
    clock = VirtualClock()

    async def waits() -> str:
        async with clock.timeout(2.0):
            await clock.sleep(1.0)
        return "done"

    assert await clock.run(waits()) == "done"
    assert clock.monotonic_s() == 1.0
    assert clock.next_alarm_in_s is None


async def test_a_timeout_of_zero_fires_at_the_first_wait():
    clock = VirtualClock()
    with pytest.raises(TimeoutError):
        async with clock.timeout(0.0):
            await asyncio.Event().wait()


async def test_a_cancel_from_outside_passes_through_a_timeout():
    clock = VirtualClock()

    async def waits():
        async with clock.timeout(5.0):
            await asyncio.Event().wait()

    task = asyncio.create_task(waits())
    await clock.advance(1.0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_an_error_inside_a_timeout_passes_through():
    clock = VirtualClock()
    with pytest.raises(ValueError, match="own"):
        async with clock.timeout(5.0):
            raise ValueError("own")
    assert clock.next_alarm_in_s is None


async def test_sleeping_no_time_lets_others_run():
    clock = VirtualClock()
    ran = asyncio.Event()
    task = asyncio.create_task(_set(ran))
    await clock.sleep(0.0)
    assert ran.is_set()
    await task


async def _set(event: asyncio.Event) -> None:
    event.set()


async def test_run_gives_up_when_nothing_is_left_to_wait_for():
    clock = VirtualClock()
    with pytest.raises(TimeoutError, match="not done"):
        await clock.run(asyncio.Event().wait())


async def test_run_gives_up_at_its_limit():
    clock = VirtualClock()
    with pytest.raises(TimeoutError):
        await clock.run(clock.sleep(100.0), limit_s=10.0)
