"""Backtests and the champion: in memory as in Redis and on disk."""

from __future__ import annotations

import stat
from dataclasses import replace

import pytest

from adapters.champion_files import CHAMPION_FOLDER, KEY_FILE, MAX_SNAPSHOT_BYTES, DiskChampionStore
from adapters.redis_insights import RedisInsightStore
from contracts.errors import Invalid, Permanent, Transient
from contracts.ids import ModelId
from contracts.insights import (
    MAX_TABLES,
    BacktestReport,
    BacktestScore,
    InsightStore,
    ModelScore,
)
from contracts.redis_keys import BACKTESTS
from simulator.memory_insights import MemoryChampionStore, MemoryInsightStore

SCORE = BacktestScore(
    method="mixture",
    horizon_s=300.0,
    scaled_pinball=0.5,
    rmsse=None,
    coverage_80=0.8,
    brier=0.1,
    reliability_max_error=None,
    looks=1000,
)
REPORT = BacktestReport(
    workload="events",
    made_at_s=1000.0,
    from_s=0.0,
    until_s=900.0,
    took_s=3.5,
    models=2,
    requests=100,
    champion="mixture",
    reason="nothing else was trained",
    scores=(SCORE,),
    by_model=(ModelScore(model=ModelId("a"), mixture=0.5, boosted=None),),
)


@pytest.fixture
def store(backend) -> InsightStore:
    return MemoryInsightStore() if backend.client is None else RedisInsightStore(backend.client)


async def test_the_newest_backtest_of_each_workload_is_kept(store):
    assert await store.backtests() == ()
    await store.put_backtest(REPORT)
    newer = replace(REPORT, made_at_s=2000.0, champion="boosted")
    other = replace(REPORT, workload="csv", made_at_s=1500.0)
    await store.put_backtest(other)
    await store.put_backtest(newer)
    assert await store.backtests() == (newer, other)


async def test_only_so_many_backtests_are_kept(store):
    for number in range(MAX_TABLES + 3):
        await store.put_backtest(replace(REPORT, workload=f"w{number:02}", made_at_s=number))
    kept = [report.workload for report in await store.backtests()]
    assert kept == [f"w{number:02}" for number in reversed(range(3, MAX_TABLES + 3))]


async def test_what_cannot_be_read_counts_as_nothing(backend, store):
    if backend.client is None:
        store.fault = Transient("away")
        with pytest.raises(Transient):
            await store.backtests()
        return
    await store.put_backtest(REPORT)
    await backend.client.hset(backend.key(BACKTESTS), "other", b'{"workload": 3}')
    assert await store.backtests() == (REPORT,)
    assert store.skipped == 1


@pytest.fixture(params=["memory", "disk"])
def champions(request, tmp_path):
    return MemoryChampionStore() if request.param == "memory" else DiskChampionStore(tmp_path)


async def test_a_snapshot_is_had_as_it_was_put_last(champions):
    assert await champions.get() is None
    await champions.put(b"one")
    await champions.put(b"two")
    assert await champions.get() == b"two"


async def test_the_key_stays_the_same(champions):
    key = await champions.key()
    assert len(key) == 32
    assert await champions.key() == key


async def test_the_key_is_its_owners_alone_and_others_find_the_same(tmp_path):
    key = await DiskChampionStore(tmp_path).key()
    assert await DiskChampionStore(tmp_path).key() == key
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


async def test_a_key_that_is_none_is_not_used(tmp_path):
    (tmp_path / KEY_FILE).write_bytes(b"short")
    with pytest.raises(Permanent, match="is no key"):
        await DiskChampionStore(tmp_path).key()


async def test_what_a_dead_writer_left_is_swept(tmp_path):
    folder = tmp_path / CHAMPION_FOLDER
    folder.mkdir()
    (folder / "champion.snapshot.99.new").write_bytes(b"half")
    store = DiskChampionStore(tmp_path)
    assert await store.get() is None
    await store.put(b"whole")
    assert [path.name for path in folder.iterdir()] == ["champion.snapshot"]


async def test_what_is_too_large_is_neither_written_nor_read(tmp_path):
    store = DiskChampionStore(tmp_path)
    with pytest.raises(Invalid):
        await store.put(bytes(MAX_SNAPSHOT_BYTES + 1))
    folder = tmp_path / CHAMPION_FOLDER
    folder.mkdir()
    with (folder / "champion.snapshot").open("wb") as file:
        file.truncate(MAX_SNAPSHOT_BYTES + 1)
    with pytest.raises(Permanent, match="larger"):
        await store.get()


async def test_a_folder_that_cannot_be_written_to_is_said(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    store = DiskChampionStore(blocked)
    for attempt in (store.put(b"x"), store.key(), store.get()):
        with pytest.raises(Permanent):
            await attempt
