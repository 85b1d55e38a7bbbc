from __future__ import annotations

import asyncio

import pytest

from adapters.clock import ScaledClock
from adapters.redis_lease import RedisLease
from adapters.redis_load_lock import RedisLoadLock
from contracts.ids import ModelId
from contracts.ports import Lease, LoadLock
from simulator.memory_ports import MemoryLease, MemoryLoadLock

MODEL = ModelId("llama")


@pytest.fixture
def lease(backend) -> Lease:
    return MemoryLease() if backend.client is None else RedisLease(backend.client)


@pytest.fixture
def lock(backend) -> LoadLock:
    return (
        MemoryLoadLock(ScaledClock()) if backend.client is None else RedisLoadLock(backend.client)
    )


async def test_one_leads_and_the_other_waits(lease: Lease):
    assert await lease.acquire("a", now_s=100.0, lease_s=10.0) is not None
    assert await lease.acquire("b", now_s=109.9, lease_s=10.0) is None


async def test_the_owner_renews_and_keeps_its_token(lease: Lease):
    token = await lease.acquire("a", now_s=100.0, lease_s=10.0)
    assert await lease.acquire("a", now_s=108.0, lease_s=10.0) == token
    assert await lease.acquire("b", now_s=112.0, lease_s=10.0) is None


async def test_after_the_lease_another_takes_over_with_a_greater_token(lease: Lease):
    first = await lease.acquire("a", now_s=100.0, lease_s=10.0)
    second = await lease.acquire("b", now_s=110.0, lease_s=10.0)
    assert first is not None
    assert second is not None
    assert second > first
    assert await lease.acquire("a", now_s=111.0, lease_s=10.0) is None


async def test_an_owner_that_comes_late_but_first_keeps_its_token(lease: Lease):
    token = await lease.acquire("a", now_s=100.0, lease_s=10.0)
    assert await lease.acquire("a", now_s=200.0, lease_s=10.0) == token


async def test_tokens_grow_also_at_one_moment_and_when_the_clock_steps_back(lease: Lease):
    tokens = []
    for owner, now_s in (("a", 100.0), ("b", 100.0), ("a", 50.0), ("b", 50.0)):
        token = await lease.acquire(owner, now_s=now_s, lease_s=10.0)
        assert token is not None
        tokens.append(token)
        await lease.release(owner)
    assert tokens == sorted(set(tokens))


async def test_only_the_owner_releases(lease: Lease):
    await lease.acquire("a", now_s=100.0, lease_s=10.0)
    await lease.release("b")
    assert await lease.acquire("b", now_s=101.0, lease_s=10.0) is None
    await lease.release("a")
    assert await lease.acquire("b", now_s=101.0, lease_s=10.0) is not None


async def test_times_of_a_real_clock_are_kept_exactly_enough(lease: Lease):
    now_s = 1_786_000_000.123
    token = await lease.acquire("a", now_s=now_s, lease_s=0.2)
    assert token is not None
    assert token >= int(now_s * 1000)
    assert await lease.acquire("b", now_s=now_s + 0.19, lease_s=0.2) is None
    assert await lease.acquire("b", now_s=now_s + 0.201, lease_s=0.2) is not None


async def test_a_load_lock_is_held_by_one_at_a_time(lock: LoadLock):
    assert await lock.take(MODEL, "a", hold_s=5.0)
    assert await lock.take(MODEL, "a", hold_s=5.0)
    assert not await lock.take(MODEL, "b", hold_s=5.0)
    assert await lock.take(ModelId("other"), "b", hold_s=5.0)


async def test_a_load_lock_is_released_by_its_holder_alone(lock: LoadLock):
    await lock.take(MODEL, "a", hold_s=5.0)
    await lock.release(MODEL, "b")
    assert not await lock.take(MODEL, "b", hold_s=5.0)
    await lock.release(MODEL, "a")
    assert await lock.take(MODEL, "b", hold_s=5.0)


async def test_a_load_lock_frees_itself(lock: LoadLock):
    await lock.take(MODEL, "dead", hold_s=0.05)
    await asyncio.sleep(0.08)
    assert await lock.take(MODEL, "b", hold_s=5.0)
