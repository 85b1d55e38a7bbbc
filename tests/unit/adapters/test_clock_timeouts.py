"""Long timeouts do what asyncio's do, on timers that they share."""

from __future__ import annotations

import asyncio

import pytest

from adapters.clock import ScaledClock
from adapters.clock_timeouts import LONG_REAL_S, SharedTimeout, SharedTimeouts


@pytest.fixture
async def timeouts() -> SharedTimeouts:
    return SharedTimeouts(asyncio.get_running_loop())


async def test_what_ends_in_time_leaves_nothing_behind(timeouts):
    async with SharedTimeout(timeouts, 60.0):
        assert timeouts.pending == 1
    assert timeouts.pending == 0
    with pytest.raises(ValueError, match="mine"):
        async with SharedTimeout(timeouts, 60.0):
            raise ValueError("mine")
    assert timeouts.pending == 0


async def test_what_takes_too_long_ends(timeouts):
    loop = asyncio.get_running_loop()
    since_s = loop.time()
    with pytest.raises(TimeoutError):
        async with SharedTimeout(timeouts, 0.05):
            await asyncio.sleep(10.0)
    assert loop.time() - since_s >= 0.05
    assert timeouts.pending == 0
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_cancellation_from_outside_stays_one(timeouts):
    async def work() -> None:
        async with SharedTimeout(timeouts, 60.0):
            await asyncio.sleep(10.0)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert timeouts.pending == 0


async def test_a_cancellation_from_outside_wins_over_a_timeout(timeouts):
    both: list[SharedTimeout] = []

    async def work() -> None:
        async with SharedTimeout(timeouts, 60.0) as timeout:
            both.append(timeout)
            await asyncio.sleep(10.0)

    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    both[0].expire()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_one_in_another_the_inner_one_ends(timeouts):
    async with SharedTimeout(timeouts, 60.0):
        with pytest.raises(TimeoutError):
            async with SharedTimeout(timeouts, 0.0):
                await asyncio.sleep(10.0)
    assert timeouts.pending == 0


async def test_an_error_in_the_block_is_not_covered_by_its_end(timeouts):
    async def work() -> None:
        try:
            await asyncio.sleep(10.0)
        except asyncio.CancelledError:
            raise ValueError("mine") from None

    with pytest.raises(ValueError, match="mine"):
        async with SharedTimeout(timeouts, 0.0):
            await work()


async def test_it_is_for_tasks(timeouts):
    failures: list[BaseException] = []

    def outside() -> None:
        try:
            SharedTimeout(timeouts, 60.0).__aenter__().send(None)
        except RuntimeError as error:
            failures.append(error)

    asyncio.get_running_loop().call_soon(outside)
    await asyncio.sleep(0)
    assert len(failures) == 1


def test_the_clock_shares_long_ones_in_each_loop():
    clock = ScaledClock(2.0)

    async def use() -> None:
        assert isinstance(clock.timeout(2.0 * LONG_REAL_S), SharedTimeout)
        assert isinstance(clock.timeout(LONG_REAL_S), asyncio.Timeout)
        async with clock.timeout(1000.0):
            await asyncio.sleep(0)

    asyncio.run(use())
    asyncio.run(use())
