"""Files, results and records of batches: on disk and in Redis as in memory."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import BinaryIO

import fsspec
import pytest

from adapters.file_store import DiskFileStore, DiskResultLog
from adapters.file_stores import open_file_store
from adapters.redis_batches import RedisBatchStore
from adapters.redis_stores import RedisSnapshotStore
from contracts.batches import (
    Batch,
    BatchFault,
    BatchStatus,
    BatchStore,
    FilePurpose,
    FileStore,
    LineCounts,
    ResultLog,
    StoredFile,
)
from contracts.config import WorkersConfig
from contracts.errors import Invalid, Transient
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.limits import ClassLimits
from contracts.ports import SnapshotStore
from contracts.reasons import Reason
from contracts.redis_keys import BATCHES
from simulator.memory_batches import MemoryBatchStore, MemoryFileStore, MemoryResultLog
from simulator.memory_ports import MemorySnapshotStore

MAX_BYTES = 1000


def _file(file_id: str = "file-1", created_at_s: float = 1.0) -> StoredFile:
    return StoredFile(
        file_id=file_id,
        filename="in.jsonl",
        purpose=FilePurpose.BATCH,
        size_bytes=0,
        created_at_s=created_at_s,
        expires_at_s=9.5,
        owner="me",
    )


def _batch(batch_id: str = "batch_1", created_at_s: float = 1.0) -> Batch:
    return Batch(
        batch_id=batch_id,
        endpoint="/v1/embeddings",
        input_file_id="file-1",
        completion_window="24h",
        status=BatchStatus.FAILED,
        created_at_s=created_at_s,
        expires_at_s=86_401.0,
        reached_at_s={BatchStatus.FAILED: 2.5},
        counts=LineCounts(total=3, completed=1, failed=2),
        faults=(BatchFault(code="x", message="grün", param="p", line=7),),
        metadata={"k": "v"},
        lines_per_s=1.5,
    )


@pytest.fixture(params=["memory", "disk", "objects"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> FileStore:
    if request.param == "memory":
        return MemoryFileStore()
    if request.param == "disk":
        return DiskFileStore(tmp_path / "files", max_bytes=MAX_BYTES)
    return objects_at(f"memory://{tmp_path}")


def objects_at(url: str) -> FileStore:
    return open_file_store(WorkersConfig(files_url=url, files_max_bytes=MAX_BYTES), Path("unused"))


@pytest.fixture(params=["memory", "disk"])
def results(request: pytest.FixtureRequest, tmp_path: Path) -> ResultLog:
    return MemoryResultLog() if request.param == "memory" else DiskResultLog(tmp_path / "results")


@pytest.fixture
def batches(backend) -> BatchStore:
    return MemoryBatchStore() if backend.client is None else RedisBatchStore(backend.client)


@pytest.fixture
def snapshots(backend) -> SnapshotStore:
    return MemorySnapshotStore() if backend.client is None else RedisSnapshotStore(backend.client)


# Files


def test_a_file_comes_back_as_it_was_with_its_real_size(files: FileStore):
    content = bytes(range(256)) * 3
    kept = files.add(_file(), io.BytesIO(content))
    assert kept == replace(_file(), size_bytes=len(content))
    assert files.get("file-1") == kept
    with files.open("file-1") as source:
        assert source.read() == content


def test_files_are_listed_oldest_first(files: FileStore):
    for name, at_s in (("file-b", 2.0), ("file-a", 2.0), ("file-c", 1.0)):
        files.add(_file(name, at_s), io.BytesIO(b"x"))
    assert [file.file_id for file in files.list()] == ["file-c", "file-a", "file-b"]


def test_a_file_that_is_written_again_is_replaced(files: FileStore):
    files.add(_file(), io.BytesIO(b"one"))
    files.add(_file(), io.BytesIO(b"another"))
    with files.open("file-1") as source:
        assert source.read() == b"another"
    assert len(files.list()) == 1


@pytest.mark.parametrize("name", ["file-2", "", "../file-1", "a/b", "x" * 300])
def test_a_file_that_is_not_there_is_none(files: FileStore, name: str):
    files.add(_file(), io.BytesIO(b"x"))
    assert files.get(name) is None
    assert not files.delete(name)
    with pytest.raises(Invalid, match="no file"):
        files.open(name)


def test_a_deleted_file_is_gone(files: FileStore):
    files.add(_file(), io.BytesIO(b"x"))
    assert files.delete("file-1")
    assert files.list() == ()


def test_a_file_that_is_open_stays_readable_while_it_is_deleted(files: FileStore):
    files.add(_file(), io.BytesIO(b"xyz"))
    with files.open("file-1") as source:
        files.delete("file-1")
        assert source.read() == b"xyz"


class _Breaking(io.BytesIO):
    def read(self, _size: int | None = -1, /) -> bytes:
        raise ConnectionError("the caller left")


@pytest.fixture
def disk(tmp_path: Path) -> DiskFileStore:
    return DiskFileStore(tmp_path / "files", max_bytes=MAX_BYTES)


def test_nothing_of_a_broken_upload_stays_on_the_disk(disk: DiskFileStore, tmp_path: Path):
    with pytest.raises(Transient):
        disk.add(_file(), _Breaking())
    assert list((tmp_path / "files").iterdir()) == []


def test_the_disk_takes_no_more_than_its_bound_in_all(disk: DiskFileStore):
    disk.add(_file("file-1"), io.BytesIO(b"x" * 600))
    with pytest.raises(Transient, match="no room"):
        disk.add(_file("file-2"), io.BytesIO(b"x" * 500))
    assert disk.get("file-2") is None
    disk.add(_file("file-2"), io.BytesIO(b"x" * 400))


def test_only_its_owner_may_look_into_the_folder(disk: DiskFileStore, tmp_path: Path):
    disk.add(_file(), io.BytesIO(b"x"))
    folder = tmp_path / "files"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}


def test_a_record_that_cannot_be_read_hides_no_other(disk: DiskFileStore, tmp_path: Path):
    disk.add(_file(), io.BytesIO(b"x"))
    (tmp_path / "files" / "file-2.json").write_text("{")
    assert [file.file_id for file in disk.list()] == ["file-1"]


def test_names_that_lead_elsewhere_are_refused(disk: DiskFileStore):
    with pytest.raises(Invalid):
        disk.add(_file("../x"), io.BytesIO(b"x"))


def test_a_folder_that_cannot_be_made_is_told(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(Invalid, match="cannot be used"):
        DiskFileStore(tmp_path / "file", max_bytes=1)


# Files in an object store


@pytest.fixture
def objects(tmp_path: Path) -> FileStore:
    return objects_at(f"memory://{tmp_path}")


def names_in(tmp_path: Path) -> set[str]:
    return {Path(name).name for name in fsspec.filesystem("memory").find(str(tmp_path))}


def test_a_broken_upload_leaves_no_object(objects: FileStore, tmp_path: Path):
    with pytest.raises(Transient, match="the caller left"):
        objects.add(_file(), _Breaking())
    assert names_in(tmp_path) == set()


def test_an_object_store_takes_no_more_than_its_bound_in_all(objects: FileStore):
    objects.add(_file("file-1"), io.BytesIO(b"x" * 600))
    with pytest.raises(Transient, match="no room"):
        objects.add(_file("file-2"), io.BytesIO(b"x" * 500))
    assert objects.get("file-2") is None
    objects.add(_file("file-2"), io.BytesIO(b"x" * 400))


def test_a_record_in_an_object_store_that_cannot_be_read_hides_no_other(
    objects: FileStore, tmp_path: Path
):
    objects.add(_file(), io.BytesIO(b"x"))
    fsspec.filesystem("memory").pipe_file(f"{tmp_path}/file-2.json", b"{")
    assert [file.file_id for file in objects.list()] == ["file-1"]


def test_what_a_killed_process_left_in_an_object_store_goes_a_day_later(
    objects: FileStore, tmp_path: Path
):
    store = fsspec.filesystem("memory")
    for name, age_h in (("old", 25), ("new", 23)):
        store.pipe_file(f"{tmp_path}/file-{name}.data", b"x")
        store.store[f"{tmp_path}/file-{name}.data"].modified -= timedelta(hours=age_h)
    objects.add(_file(), io.BytesIO(b"x"))
    assert names_in(tmp_path) == {"file-1.json", "file-1.data", "file-new.data"}


def test_a_store_that_does_not_answer_is_told_and_may_answer_later(
    objects: FileStore, monkeypatch: pytest.MonkeyPatch
):
    def broken(*_: object, **__: object) -> bytes:
        raise RuntimeError("no route to the store")

    monkeypatch.setattr(fsspec.filesystem("memory"), "cat_file", broken)
    with pytest.raises(Transient, match="cannot read a file: no route to the store"):
        objects.get("file-1")


@pytest.mark.parametrize("url", ["nowhere://bucket/x", "s3//bucket"])
def test_an_address_that_leads_nowhere_is_told_at_the_start(url: str):
    with pytest.raises(Invalid, match=re.escape(url)):
        objects_at(url)


# Results


def _all(results: ResultLog) -> Iterator[tuple[int, bytes]]:
    return results.records("batch_1")


def test_records_come_back_segment_by_segment(results: ResultLog):
    for numbers in ((1, 3), (2, 1)):
        segment = results.begin("batch_1")
        for number in numbers:
            segment.append(number, b'+{"n": %d}' % number)
        segment.close()
    assert [number for number, _ in _all(results)] == [1, 3, 2, 1]
    assert next(iter(_all(results))) == (1, b'+{"n": 1}')
    assert list(results.records("batch_2")) == []


def test_removed_results_are_gone_and_may_be_removed_again(results: ResultLog):
    results.begin("batch_1").append(1, b"+")
    results.remove("batch_1")
    results.remove("batch_1")
    assert list(_all(results)) == []


def test_a_record_is_one_line(results: ResultLog):
    segment = results.begin("batch_1")
    with pytest.raises(Invalid, match="one line"):
        segment.append(1, b"+a\nb")
    segment.close()


def test_what_a_killed_process_left_half_written_is_not_read(tmp_path: Path):
    log = DiskResultLog(tmp_path)
    segment = log.begin("batch_1")
    segment.append(1, b"+one")
    segment.close()
    (path,) = (tmp_path / "batch_1").iterdir()
    with path.open("ab") as file:
        file.write(b"2 +tw")
    again = log.begin("batch_1")
    again.append(2, b"+two")
    again.close()
    assert list(log.records("batch_1")) == [(1, b"+one"), (2, b"+two")]


def test_names_of_batches_that_lead_elsewhere_are_refused(tmp_path: Path):
    with pytest.raises(Invalid):
        DiskResultLog(tmp_path).begin("../x")


# Records of batches


async def test_a_batch_comes_back_as_it_was(batches: BatchStore):
    await batches.add(_batch())
    assert await batches.get("batch_1") == _batch()
    assert await batches.get("batch_2") is None


async def test_a_change_is_made_once_from_the_state_that_it_names(batches: BatchStore):
    await batches.add(_batch())
    changed = await batches.replace(replace(_batch(), lines_per_s=2.0))
    assert changed == replace(_batch(), lines_per_s=2.0, revision=1)
    assert await batches.replace(replace(_batch(), lines_per_s=3.0)) is None
    assert await batches.get("batch_1") == changed
    assert await batches.replace(_batch("batch_9")) is None


async def test_batches_are_listed_newest_first(batches: BatchStore):
    for name, at_s in (("batch_a", 1.0), ("batch_b", 3.0), ("batch_c", 2.0)):
        await batches.add(_batch(name, at_s))
    assert [b.batch_id for b in await batches.list()] == ["batch_b", "batch_c", "batch_a"]
    await batches.remove("batch_b")
    assert [b.batch_id for b in await batches.list()] == ["batch_c", "batch_a"]


async def test_one_at_a_time_has_a_batch(batches: BatchStore):
    assert not await batches.is_taken("batch_1")
    assert await batches.take("batch_1", "a", hold_s=30.0)
    assert await batches.take("batch_1", "a", hold_s=30.0)
    assert await batches.is_taken("batch_1")
    assert not await batches.take("batch_1", "b", hold_s=30.0)
    await batches.let_go("batch_1", "b")
    assert not await batches.take("batch_1", "b", hold_s=30.0)
    await batches.let_go("batch_1", "a")
    assert await batches.take("batch_1", "b", hold_s=30.0)


async def test_a_record_in_redis_that_cannot_be_read_hides_no_other(backend):
    if backend.client is None:
        return
    batches = RedisBatchStore(backend.client)
    await batches.add(_batch())
    await backend.client.hset(backend.key(BATCHES), "batch_x", "{")
    assert [b.batch_id for b in await batches.list()] == ["batch_1"]
    assert await batches.get("batch_x") is None


# Limits


async def test_the_newest_limits_of_a_class_are_kept(snapshots: SnapshotStore):
    limits = ClassLimits(
        priority=PriorityClass.BATCH,
        slots=3,
        loadable=(ModelId("m"),),
        valid_until_s=10.0,
        reason=Reason.DEMAND,
    )
    assert await snapshots.limits(PriorityClass.BATCH) is None
    await snapshots.put_limits(limits)
    await snapshots.put_limits(replace(limits, slots=4))
    assert await snapshots.limits(PriorityClass.BATCH) == replace(limits, slots=4)
    assert await snapshots.limits(PriorityClass.BACKGROUND) is None


def test_a_source_is_read_to_its_end(disk: DiskFileStore, tmp_path: Path):
    path = tmp_path / "source"
    path.write_bytes(b"header" + b"x" * 100)
    source: BinaryIO
    with path.open("rb") as source:
        source.seek(6)
        assert disk.add(_file(), source).size_bytes == 100
