"""Stores with one writer: who was taken over from changes nothing, in memory and in Redis."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from adapters.redis_forecasts import RedisForecastStore
from adapters.redis_history import RedisHistoryStore
from adapters.redis_lease import PREDICTORS_LEASE, RedisLease
from contracts.errors import NotLeader
from contracts.forecasts import ModelForecast
from contracts.history import HistoryBucket, HistoryPage, HistoryStore
from contracts.ids import ModelId
from contracts.ports import ForecastStore, Lease
from simulator.memory_history import MemoryHistoryStore
from simulator.memory_ports import MemoryForecastStore, MemoryLease

CHAT = ModelId("chat")
OLD, NEW = 7, 8
SAID = (ModelForecast(model=CHAT, next_use=None, signals=()),)


@dataclass(frozen=True)
class Stores:
    forecasts: ForecastStore
    history: HistoryStore


@pytest.fixture
def stores(backend) -> Stores:
    if backend.client is None:
        return Stores(MemoryForecastStore(), MemoryHistoryStore())
    return Stores(RedisForecastStore(backend.client), RedisHistoryStore(backend.client))


def counted(arrivals: int) -> tuple[HistoryPage, ...]:
    bucket = HistoryBucket(number=5, arrivals=arrivals)
    return (HistoryPage(model=CHAT, width_s=60.0, buckets=(bucket,)),)


async def test_the_owner_writes_forecasts_and_goes_on_writing(stores: Stores) -> None:
    await stores.forecasts.put(SAID, token=OLD)
    await stores.forecasts.put(SAID, token=OLD)
    await stores.forecasts.remove((CHAT,), token=OLD)

    assert await stores.forecasts.get_all() == {}


async def test_forecasts_of_who_was_taken_over_from_are_refused(stores: Stores) -> None:
    await stores.forecasts.put(SAID, token=OLD)
    place, _ = await stores.forecasts.updates("$", block_s=0.0)
    await stores.forecasts.remove((), token=NEW)

    with pytest.raises(NotLeader):
        await stores.forecasts.put(SAID * 2, token=OLD)
    with pytest.raises(NotLeader):
        await stores.forecasts.remove((CHAT,), token=OLD)
    assert (await stores.forecasts.updates(place, block_s=0.0))[1] == ()
    assert await stores.forecasts.get_all() == {CHAT: SAID[0]}
    await stores.forecasts.put(SAID, token=NEW)


async def test_history_of_who_was_taken_over_from_is_refused_as_a_whole(stores: Stores) -> None:
    await stores.history.write(counted(3), place="1-0", token=OLD)
    await stores.history.write(counted(4), place="2-0", token=NEW)

    with pytest.raises(NotLeader):
        await stores.history.write(counted(9), place="3-0", token=OLD)
    with pytest.raises(NotLeader):
        await stores.history.remove((CHAT,), token=OLD)
    assert await stores.history.read(CHAT) == counted(4)
    assert await stores.history.place() == "2-0"
    await stores.history.remove((CHAT,), token=NEW)
    assert await stores.history.models() == ()


async def test_the_word_of_a_new_owner_alone_fences_history(stores: Stores) -> None:
    await stores.history.remove((), token=NEW)

    with pytest.raises(NotLeader):
        await stores.history.write((), place="3-0", token=OLD)
    assert await stores.history.place() is None


async def test_who_has_no_rival_writes_without_a_token(stores: Stores) -> None:
    await stores.forecasts.remove((), token=NEW)
    await stores.forecasts.put(SAID)
    await stores.history.remove((), token=NEW)
    await stores.history.write(counted(3), place="1-0")

    assert await stores.forecasts.get(CHAT) == SAID[0]
    assert await stores.history.place() == "1-0"


async def test_leases_of_different_names_are_held_apart(backend) -> None:
    leases: tuple[Lease, Lease] = (
        (MemoryLease(), MemoryLease())
        if backend.client is None
        else (RedisLease(backend.client), RedisLease(backend.client, PREDICTORS_LEASE))
    )
    for lease in leases:
        assert await lease.acquire("a", now_s=100.0, lease_s=10.0) is not None
    await leases[0].release("a")
    assert await leases[0].acquire("b", now_s=101.0, lease_s=10.0) is not None
    assert await leases[1].acquire("b", now_s=101.0, lease_s=10.0) is None
