"""The page cache seen by a process: real files of a few MiB, and what may not be seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters import page_cache
from adapters.clock import ScaledClock
from adapters.page_cache import PageCache, cached_bytes, is_supported, may_see
from contracts.errors import Transient
from contracts.world import HostMemory

MIB = 1024**2


def write(path: Path, size: int) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.write(os.urandom(size))
        os.fsync(file.fileno())
    return path


@pytest.fixture
def cache(tmp_path: Path) -> PageCache:
    return PageCache(tmp_path, ScaledClock(1.0))


async def test_a_folder_of_weights_is_all_files_in_it(cache: PageCache, tmp_path: Path):
    write(tmp_path / "org/repo/one.safetensors", MIB)
    write(tmp_path / "org/repo/two.safetensors", 2 * MIB)
    (tmp_path / "org/repo/empty").touch()
    (tmp_path / "org/repo/deeper").mkdir()
    seen = await cache.look(("org/repo",))
    assert seen is not None
    assert (seen.size_bytes, seen.cached_bytes) == (3 * MIB, 3 * MIB)


@pytest.mark.case("P149")
@pytest.mark.parametrize(
    "name",
    [
        "/etc/hostname", "../secret", "a/../../secret", "huggingface://o/r/f.gguf",
        "https://host/f.gguf", "bundled:silero_vad", "\0", "x" * 5000, "missing/deep/x.gguf",
    ],
)  # fmt: skip
async def test_nothing_out_of_the_folder_is_read(tmp_path: Path, name: str):
    write(tmp_path / "secret", MIB)
    cache = PageCache(tmp_path / "models", ScaledClock(1.0))
    assert await cache.look((name,)) is None
    assert await cache.warm((name,), bytes_per_s=1e12, go_on=lambda: True) == 0
    await cache.drop((name,))


async def test_a_pipe_is_no_file_of_weights(cache: PageCache, tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    assert await cache.look(("pipe",)) is None
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder/pipe")
    assert await cache.look(("folder",)) is None


async def test_what_may_not_be_seen_is_not_called_cached(
    cache: PageCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path / "a.gguf", MIB)
    monkeypatch.setattr(page_cache, "may_see", lambda *_: False)
    seen = await cache.look(("a.gguf",))
    assert seen is not None
    assert (seen.size_bytes, seen.cached_bytes) == (MIB, None)


def test_mincore_is_believed_by_owners_and_writers_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = write(tmp_path / "a", 1)
    status = path.stat()
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(os, "geteuid", lambda: status.st_uid)
    assert may_see(path, status)
    monkeypatch.setattr(os, "geteuid", lambda: status.st_uid + 7)
    assert not may_see(path, status)
    monkeypatch.setattr(os, "access", lambda *_: True)
    assert may_see(path, status)


async def test_a_file_that_cannot_be_read_is_told(
    cache: PageCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path / "a.gguf", MIB)

    def broken(*_: object) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "preadv", broken)
    with pytest.raises(Transient, match=r"a\.gguf: Input/output error"):
        await cache.warm(("a.gguf",), bytes_per_s=1e12, go_on=lambda: True)


def test_where_the_system_cannot_there_is_no_warm_tier(monkeypatch: pytest.MonkeyPatch):
    assert is_supported()
    monkeypatch.delattr(os, "posix_fadvise")
    assert not is_supported()


async def test_a_file_that_goes_while_it_is_looked_at_is_not_there(
    cache: PageCache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write(tmp_path / "a.gguf", MIB)

    def gone(*_: object) -> int:
        raise FileNotFoundError(2, "No such file")

    monkeypatch.setattr(os, "open", gone)
    assert await cache.look(("a.gguf",)) is None
    await cache.drop(("a.gguf",))


async def test_a_folder_that_may_not_be_seen_holds_nothing(
    cache: PageCache, monkeypatch: pytest.MonkeyPatch
):
    def denied(_self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", denied)
    assert await cache.look(("a.gguf",)) is None


async def test_reading_is_as_slow_as_it_is_told(tmp_path: Path):
    class Counting(ScaledClock):
        slept_s = 0.0

        async def sleep(self, duration_s: float) -> None:
            self.slept_s += duration_s

    clock = Counting(1.0)
    write(tmp_path / "a.gguf", 4 * MIB)
    cache = PageCache(tmp_path, clock)
    await cache.warm(("a.gguf",), bytes_per_s=0.5 * MIB, go_on=lambda: True)
    assert 4.0 < clock.slept_s <= 8.0


def test_a_large_file_is_judged_by_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "big", 4 * MIB)
    monkeypatch.setattr(page_cache, "SAMPLED_ABOVE_BYTES", MIB)
    monkeypatch.setattr(page_cache, "SAMPLE_BYTES", 64 * 1024)
    monkeypatch.setattr(page_cache, "SAMPLES", 8)
    with path.open("rb") as file:
        assert cached_bytes(file.fileno(), 4 * MIB) == 4 * MIB
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        assert cached_bytes(file.fileno(), 4 * MIB) <= 4 * MIB


@pytest.mark.parametrize(
    ("size", "is_closed"), [(MIB, True), (0, False)], ids=["no descriptor", "nothing to see"]
)
def test_the_edges_of_what_can_be_seen(tmp_path: Path, size: int, is_closed: bool):
    path = write(tmp_path / "a", size)
    descriptor = os.open(path, os.O_RDONLY)
    if is_closed:
        os.close(descriptor)
        with pytest.raises(OSError, match="mmap failed"):
            cached_bytes(descriptor, size)
    else:
        assert cached_bytes(descriptor, size) == 0
        os.close(descriptor)


def test_mincore_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = write(tmp_path / "a", MIB)

    class Library:
        mmap, munmap = page_cache._LIBC.mmap, page_cache._LIBC.munmap

        @staticmethod
        def mincore(*_: object) -> int:
            return -1

    monkeypatch.setattr(page_cache, "_LIBC", Library)
    with path.open("rb") as file, pytest.raises(OSError, match="mincore failed"):
        cached_bytes(file.fileno(), MIB)


async def test_the_memory_of_the_host_is_that_of_our_group(
    cache: PageCache, monkeypatch: pytest.MonkeyPatch
):
    from adapters.probes.cgroups import GroupLimits
    from adapters.probes.host_memory import HostMemory as Machine

    monkeypatch.setattr(page_cache, "machine_memory", lambda: Machine(1000, 600))
    monkeypatch.setattr(page_cache, "limits_of", GroupLimits)
    assert await cache.host() == HostMemory(total_bytes=1000, available_bytes=600)
    limits = GroupLimits(memory_limit_bytes=500, memory_used_bytes=100)
    monkeypatch.setattr(page_cache, "limits_of", lambda: limits)
    assert await cache.host() == HostMemory(total_bytes=500, available_bytes=400)
    monkeypatch.setattr(page_cache, "machine_memory", lambda: None)
    assert await cache.host() is None
