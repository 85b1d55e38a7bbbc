from __future__ import annotations

import asyncio

import pytest

from adapters.redis_events import RedisEventLog
from contracts.events import AnyEvent, ModelUnloaded, NodeLost, UnloadCause
from contracts.ids import ModelId, NodeId
from contracts.ports import EventLog, entry_order
from contracts.redis_keys import EVENTS
from simulator.memory_ports import MemoryEventLog


@pytest.fixture
def log(backend) -> EventLog:
    if backend.client is None:
        return MemoryEventLog()
    return RedisEventLog(backend.client)


async def _append_unreadable(log: EventLog, backend) -> None:
    if isinstance(log, MemoryEventLog):
        log.append_unreadable()
    else:
        await backend.client.xadd(
            backend.key(EVENTS), {"r": b'{"v":99,"kind":"NodeLost","data":{}}'}
        )


def event(number: int) -> AnyEvent:
    return NodeLost(
        event_id=f"e{number}", at_s=float(number), source="test", node=NodeId("n"), error=""
    )


def events(*numbers: int) -> tuple[AnyEvent, ...]:
    return tuple(event(number) for number in numbers)


def numbers(entries) -> list[int]:
    return [int(entry.value.event_id[1:]) for entry in entries]


async def test_what_is_appended_is_read_in_its_order(log: EventLog):
    await log.append(events(1, 2, 3))
    entries = await log.read_after("0", count=10)
    assert numbers(entries) == [1, 2, 3]
    assert entries[0].value == event(1)
    places = [entry_order(entry.entry_id) for entry in entries]
    assert places == sorted(set(places))


async def test_a_reader_is_woken_by_an_append(log: EventLog):
    reading = asyncio.create_task(log.read_after("0", count=10, block_s=5.0))
    await asyncio.sleep(0.05)
    await log.append(events(1))
    async with asyncio.timeout(2.0):
        assert numbers(await reading) == [1]


async def test_a_reader_comes_back_empty_after_its_time(log: EventLog):
    started_s = asyncio.get_running_loop().time()
    assert await log.read_after("0", count=10, block_s=0.1) == ()
    assert 0.09 <= asyncio.get_running_loop().time() - started_s < 2.0


async def test_unreadable_records_are_skipped_counted_once_and_do_not_block(log, backend):
    await log.append(events(1))
    await _append_unreadable(log, backend)
    await _append_unreadable(log, backend)
    await log.append(events(2))
    assert numbers(await log.read_after("0", count=10)) == [1, 2]
    assert log.skipped == 2
    (first,) = await log.read_after("0", count=1)
    assert numbers(await log.read_after(first.entry_id, count=1)) == [2]
    assert log.skipped == 2


async def test_only_unreadable_records_are_as_none(log, backend):
    await _append_unreadable(log, backend)
    assert await log.read_after("0", count=10) == ()
    assert log.skipped == 1


async def test_read_after_a_place_and_from_now_on(log: EventLog):
    assert await log.last_id() == "0"
    await log.append(events(1, 2))
    first, second = await log.read_after("0", count=10)
    assert numbers(await log.read_after(first.entry_id, count=10)) == [2]
    assert await log.last_id() == second.entry_id
    assert await log.read_after("$", count=10) == ()
    reading = asyncio.create_task(log.read_after("$", count=10, block_s=5.0))
    await asyncio.sleep(0.05)
    await log.append(events(3))
    assert numbers(await reading) == [3]


async def test_read_after_gives_no_more_than_asked_for(log: EventLog):
    await log.append(events(1, 2, 3))
    assert numbers(await log.read_after("0", count=2)) == [1, 2]


async def test_appending_nothing_writes_nothing(log: EventLog):
    await log.append(())
    assert await log.last_id() == "0"


async def test_many_events_go_in_one_append(log: EventLog):
    await log.append(events(*range(1234)))
    assert numbers(await log.read_after("0", count=2000)) == list(range(1234))


@pytest.mark.case("P111")
async def test_the_log_is_bounded(backend):
    log: EventLog = (
        MemoryEventLog(max_entries=100)
        if backend.client is None
        else RedisEventLog(backend.client, max_entries=100)
    )
    await log.append(events(*range(1000)))
    kept = numbers(await log.read_after("0", count=2000))
    # A stream is trimmed by whole nodes of up to a hundred entries.
    assert 100 <= len(kept) <= 250
    assert kept[-1] == 999


async def test_every_field_survives_the_way(log: EventLog):
    unloaded = ModelUnloaded(
        event_id="e", at_s=1.5, source="ü", model=ModelId("a/b"), node=NodeId("n"),
        cause=UnloadCause.GHOST,
    )  # fmt: skip
    await log.append((unloaded,))
    (entry,) = await log.read_after("0", count=10)
    assert entry.value == unloaded
