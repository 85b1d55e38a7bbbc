"""The rings of past counts, in memory and in Redis."""

from __future__ import annotations

import pytest

from adapters.redis_history import RedisHistoryStore
from contracts.history import HISTORY_RINGS, HistoryBucket, HistoryPage, HistoryStore
from contracts.ids import ModelId
from simulator.memory_history import MemoryHistoryStore

CHAT = ModelId("chat")
ODD = ModelId("a:b/c ü")
SLOTS = HISTORY_RINGS[60.0]


@pytest.fixture
def store(backend) -> HistoryStore:
    return MemoryHistoryStore() if backend.client is None else RedisHistoryStore(backend.client)


def page(*numbers: int, width_s: float = 60.0, model: ModelId = CHAT, arrivals: int = 3):
    buckets = tuple(HistoryBucket(number=number, arrivals=arrivals) for number in numbers)
    return HistoryPage(model=model, width_s=width_s, buckets=buckets)


async def test_nothing_is_known_before_something_is_written(store: HistoryStore) -> None:
    assert await store.place() is None
    assert await store.models() == ()
    assert await store.read(CHAT) == ()
    await store.remove(())


async def test_buckets_are_read_as_they_were_written(store: HistoryStore) -> None:
    whole = HistoryPage(
        model=ODD,
        width_s=10.0,
        buckets=(
            HistoryBucket(number=7, arrivals=1),
            HistoryBucket(number=9, arrivals=2, input_tokens=512.0, output_tokens=64.0, busy_s=1.5),
        ),
    )
    await store.write((whole, page(5)), place="12-3")

    assert await store.read(ODD) == (whole,)
    assert await store.read(CHAT) == (page(5),)
    assert set(await store.models()) == {CHAT, ODD}
    assert await store.place() == "12-3"


async def test_a_bucket_that_is_written_again_is_replaced(store: HistoryStore) -> None:
    await store.write((page(5, arrivals=3),), place="1-0")
    await store.write((page(5, arrivals=8),), place="2-0")

    assert await store.read(CHAT) == (page(5, arrivals=8),)
    assert await store.place() == "2-0"


async def test_a_ring_holds_so_many_and_older_ones_are_gone(store: HistoryStore) -> None:
    await store.write((page(10, 11),), place="1-0")
    await store.write((page(10 + SLOTS),), place="2-0")

    assert await store.read(CHAT) == (page(11, 10 + SLOTS),)
    await store.write((page(12 + 3 * SLOTS),), place="3-0")
    assert await store.read(CHAT) == (page(12 + 3 * SLOTS),)


async def test_a_count_beyond_all_measure_is_cut(store: HistoryStore) -> None:
    await store.write((page(5, arrivals=10**9),), place="1-0")

    assert await store.read(CHAT) == (page(5, arrivals=10**9),)


async def test_what_is_removed_is_gone(store: HistoryStore) -> None:
    await store.write((page(5), page(6, model=ODD)), place="1-0")
    await store.remove((CHAT,))

    assert await store.read(CHAT) == ()
    assert await store.models() == (ODD,)
    await store.write((), place="2-0")
    assert await store.place() == "2-0"
