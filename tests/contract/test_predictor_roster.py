"""What predictors tell of themselves, in memory and in Redis."""

from __future__ import annotations

import pytest

from adapters.redis_client import key_for
from adapters.redis_predictors import RedisPredictorRoster
from contracts.predictors import (
    FORGOTTEN_AFTER_S,
    MAX_PREDICTORS,
    PredictorBeat,
    PredictorRoster,
    Standing,
)
from contracts.redis_keys import PREDICTORS
from simulator.memory_predictors import MemoryPredictorRoster


@pytest.fixture
def roster(backend) -> PredictorRoster:
    if backend.client is None:
        return MemoryPredictorRoster()
    return RedisPredictorRoster(backend.client)


def beat(name: str, at_s: float = 100.0, standing: Standing = Standing.STANDBY) -> PredictorBeat:
    return PredictorBeat(name=name, host="h", standing=standing, at_s=at_s, since_s=1.0)


async def test_the_newest_word_of_each_is_kept_until_it_leaves(roster: PredictorRoster) -> None:
    assert await roster.all() == ()
    await roster.beat(beat("b"))
    await roster.beat(beat("a"))
    await roster.beat(beat("b", 101.0, Standing.OWNER))

    assert await roster.all() == (beat("a"), beat("b", 101.0, Standing.OWNER))
    await roster.leave("b")
    await roster.leave("unknown")
    assert await roster.all() == (beat("a"),)


async def test_who_was_not_heard_of_for_long_is_forgotten(roster: PredictorRoster) -> None:
    await roster.beat(beat("dead"))
    await roster.beat(beat("a", 100.0 + FORGOTTEN_AFTER_S + 1.0))

    assert [each.name for each in await roster.all()] == ["a"]


async def test_no_more_than_so_many_are_kept(roster: PredictorRoster) -> None:
    for number in range(MAX_PREDICTORS + 3):
        await roster.beat(beat(f"p{number:03}", 100.0 + number))

    names = [each.name for each in await roster.all()]
    assert len(names) == MAX_PREDICTORS
    assert names[0] == "p003"


async def test_a_record_that_cannot_be_read_is_passed_over(backend) -> None:
    if backend.client is None:
        return
    roster = RedisPredictorRoster(backend.client)
    await backend.client.hset(key_for(backend.client, PREDICTORS), "odd", b"{")
    await roster.beat(beat("a"))

    assert [each.name for each in await roster.all()] == ["a"]
    assert roster.skipped > 0


async def test_records_that_cannot_be_read_are_no_more_than_there_is_room_for(backend) -> None:
    if backend.client is None:
        return
    roster, key = RedisPredictorRoster(backend.client), key_for(backend.client, PREDICTORS)
    for number in range(MAX_PREDICTORS + 3):
        await backend.client.hset(key, f"odd{number}", b"{")
    await roster.beat(beat("a"))

    assert await backend.client.hlen(key) == MAX_PREDICTORS
    assert await roster.all() == (beat("a"),)
