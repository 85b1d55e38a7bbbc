"""Readings of machines are logged now and then, everything else each time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from adapters.thin_events import EVERY_S, MAX_NODES, ThinEventLog
from contracts.errors import Transient
from contracts.ids import NodeId
from contracts.readings import ProbeReading
from simulator.clock import VirtualClock
from simulator.memory_ports import MemoryEventLog
from tests.worlds import A, observed, received


@pytest.fixture
def kept():
    return MemoryEventLog(clock=VirtualClock(0.0))


def seen(at_s, node="gpu"):
    return replace(observed(at_s, A), node=NodeId(node), reading=ProbeReading(at_s=at_s))


async def logged(log):
    return [entry.value for entry in await log.read_after("0", count=5000)]


async def test_a_reading_now_and_then_for_each_node(kept):
    log = ThinEventLog(kept)
    for tick in range(7):
        await log.append((seen(5.0 * tick), seen(5.0 * tick, "other")))
    with_reading = [(e.node, e.at_s) for e in await logged(log) if e.reading is not None]
    assert with_reading == [
        (node, at_s) for at_s in (0.0, EVERY_S, 2 * EVERY_S) for node in ("gpu", "other")
    ]
    assert len(await logged(log)) == 14


async def test_also_after_the_clock_was_set_back(kept):
    log = ThinEventLog(kept)
    await log.append((seen(100.0),))
    await log.append((seen(50.0),))
    assert [e.reading is not None for e in await logged(log)] == [True, True]


async def test_all_else_as_it_is(kept):
    log = ThinEventLog(kept)
    events = (received("r", A, 1.0), observed(1.0, A))
    await log.append(events)
    assert await logged(log) == list(events)
    assert await log.last_id() == await kept.last_id()
    assert log.skipped == 0


async def test_what_was_not_written_is_written_again(kept):
    log = ThinEventLog(kept)
    kept.fault = Transient("away")
    with pytest.raises(Transient):
        await log.append((seen(0.0),))
    kept.fault = None
    await log.append((seen(0.0),))
    assert [e.reading is not None for e in await logged(log)] == [True]


async def test_nodes_are_bounded(kept):
    log = ThinEventLog(kept)
    await log.append(tuple(seen(0.0, f"n{number}") for number in range(MAX_NODES + 1)))
    await log.append((seen(1.0, "n0"), seen(1.0, f"n{MAX_NODES}")))
    assert [e.reading is not None for e in (await logged(log))[-2:]] == [True, False]
