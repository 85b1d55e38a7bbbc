"""A leader and gateways that load alone: neither begins on a node beside the other."""

from __future__ import annotations

import asyncio

import pytest

from contracts.errors import Transient
from contracts.ids import NodeId
from contracts.ports import node_lock
from controller.node_turns import (
    FIRST_HOLD_REAL_S,
    FIRST_WAIT_REAL_S,
    HOLD_REAL_S,
    WAIT_REAL_S,
    NodeTurns,
)
from simulator.clock import VirtualClock, settle
from simulator.memory_ports import MemoryLoadLock

A, B = NodeId("a"), NodeId("b")


async def test_free_nodes_are_taken_at_once_and_free_themselves():
    clock = VirtualClock()
    lock = MemoryLoadLock(clock)
    assert await NodeTurns(lock, clock).take_over((A, B)) == frozenset()
    assert not await lock.take(node_lock(A), "gateway", hold_s=30.0)
    await clock.advance(FIRST_HOLD_REAL_S + 0.1)
    assert await lock.take(node_lock(A), "gateway", hold_s=30.0)


async def test_a_load_that_ends_in_time_is_waited_for():
    clock = VirtualClock()
    lock = MemoryLoadLock(clock)
    await lock.take(node_lock(A), "gateway", hold_s=30.0)
    taking = asyncio.create_task(NodeTurns(lock, clock).take_over((A, B)))
    await settle()
    await clock.advance(0.5)
    assert not taking.done()
    await lock.release(node_lock(A), "gateway")
    await clock.advance(0.2)
    assert await taking == frozenset()


async def test_one_that_takes_longer_is_left_to_go_on():
    clock = VirtualClock()
    lock = MemoryLoadLock(clock)
    await lock.take(node_lock(A), "gateway", hold_s=30.0)
    taking = asyncio.create_task(NodeTurns(lock, clock).take_over((A, B)))
    await settle()
    await clock.advance(FIRST_WAIT_REAL_S + 0.2)
    assert await taking == {A}


async def test_without_a_lock_or_a_store_it_goes_on():
    clock = VirtualClock()
    assert await NodeTurns(None, clock).take_over((A,)) == frozenset()
    lock = MemoryLoadLock(clock)
    lock.fault = Transient("away")
    assert await NodeTurns(lock, clock).take_over((A,)) == frozenset()


async def test_its_loads_hold_a_node_together_until_the_last_has_ended():
    clock = VirtualClock()
    lock = MemoryLoadLock(clock)
    turns = NodeTurns(lock, clock)
    async with turns.hold(A):
        async with turns.hold(A):
            await clock.advance(3.0 * HOLD_REAL_S)
            assert not await lock.take(node_lock(A), "gateway", hold_s=1.0)
            assert await lock.take(node_lock(B), "gateway", hold_s=1.0)
        assert not await lock.take(node_lock(A), "gateway", hold_s=1.0)
    assert await lock.take(node_lock(A), "gateway", hold_s=1.0)


async def test_where_a_gateway_loads_a_load_is_planned_anew():
    clock = VirtualClock()
    lock = MemoryLoadLock(clock)
    turns = NodeTurns(lock, clock)
    await lock.take(node_lock(A), "gateway", hold_s=30.0)

    async def load() -> None:
        async with turns.hold(A):
            raise AssertionError("it is not its turn")

    loading = asyncio.create_task(load())
    await settle()
    await clock.advance(WAIT_REAL_S + 0.2)
    with pytest.raises(Transient, match="a gateway loads on a alone"):
        await loading


async def test_without_a_store_loads_go_on():
    clock = VirtualClock()
    lock = MemoryLoadLock(clock)
    lock.fault = Transient("away")
    async with NodeTurns(lock, clock).hold(A):
        pass
    async with NodeTurns(None, clock).hold(A):
        pass


async def test_a_new_leader_takes_over_what_the_last_has_left():
    clock = VirtualClock()
    lock = MemoryLoadLock(clock)
    async with NodeTurns(lock, clock).hold(A):
        assert await NodeTurns(lock, clock).take_over((A,)) == frozenset()
        async with NodeTurns(lock, clock).hold(A):
            assert not await lock.take(node_lock(A), "gateway", hold_s=1.0)
