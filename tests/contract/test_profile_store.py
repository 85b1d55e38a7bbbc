from __future__ import annotations

import pytest

from adapters.redis_profiles import RedisProfileStore
from contracts.ids import ModelId, NodeId
from contracts.memory import HOST, PlaceId
from contracts.ports import ProfileStore
from contracts.profiles import LOAD_COLD, MeasuredProfile, Measures, Series
from simulator.memory_profiles import MemoryProfileStore

BOUND = 3


@pytest.fixture
def store(backend) -> ProfileStore:
    if backend.client is None:
        return MemoryProfileStore(max_models=BOUND)
    return RedisProfileStore(backend.client, max_models=BOUND)


def profile(name: str, at_s: float = 1.0) -> MeasuredProfile:
    measures = Measures(
        node=NodeId("gpu"),
        revision="r1",
        footprints=({PlaceId("GPU-1"): 3_000_000_000, HOST: 500_000_000},),
        footprint_count=4,
        footprint_at_s=at_s,
        rejected=1,
        series={LOAD_COLD: Series(values=(8.25, 8.5), count=2, at_s=at_s)},
        at_s=at_s,
    )
    return MeasuredProfile(model=ModelId(name), measures=(measures,))


async def test_what_was_put_is_there_as_it_was(store: ProfileStore):
    await store.put((profile("a"), profile("org/b c")))
    assert await store.get(ModelId("a")) == profile("a")
    assert await store.get_all() == {"a": profile("a"), "org/b c": profile("org/b c")}


async def test_a_newer_one_replaces_the_last(store: ProfileStore):
    await store.put((profile("a", 1.0),))
    await store.put((profile("a", 2.0),))
    assert await store.get_all() == {"a": profile("a", 2.0)}


async def test_nothing_is_known_of_others(store: ProfileStore):
    assert await store.get(ModelId("a")) is None
    assert await store.get_all() == {}
    await store.put(())


async def test_removed_ones_are_gone(store: ProfileStore):
    await store.put((profile("a"), profile("b")))
    await store.remove((ModelId("a"), ModelId("never there")))
    await store.remove(())
    assert set(await store.get_all()) == {"b"}


async def test_past_the_bound_those_measured_longest_ago_go_and_are_counted(store: ProfileStore):
    await store.put(tuple(profile(name, at_s) for at_s, name in enumerate("abcde", start=1)))
    assert set(await store.get_all()) == {"c", "d", "e"}
    await store.put((profile("c", 9.0), profile("f", 10.0)))
    assert set(await store.get_all()) == {"c", "e", "f"}
    assert store.dropped == 3


async def test_a_removed_one_makes_room(store: ProfileStore):
    await store.put((profile("a", 1.0), profile("b", 2.0), profile("c", 3.0)))
    await store.remove((ModelId("c"),))
    await store.put((profile("d", 4.0),))
    assert set(await store.get_all()) == {"a", "b", "d"}
    assert store.dropped == 0
