"""What every ``WeightCache`` does, the one in memory and the one over real files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from adapters.clock import ScaledClock
from adapters.page_cache import PageCache
from contracts.ports import WeightCache
from simulator.memory_ports import MemoryWeightCache

MIB = 1024**2
FILES = {"a.gguf": 20 * MIB, "sub/b.gguf": 3 * MIB}
FAST = 1e12


@pytest.fixture(params=["memory", "files"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> WeightCache:
    if request.param == "memory":
        return MemoryWeightCache(ScaledClock(1.0), FILES)
    for name, size in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        with path.open("wb") as file:
            file.write(os.urandom(size))
            os.fsync(file.fileno())
    return PageCache(tmp_path, ScaledClock(1.0))


def always() -> bool:
    return True


async def test_the_size_of_files_is_told_and_what_is_not_there_is_passed_over(cache: WeightCache):
    seen = await cache.look(("a.gguf", "sub/b.gguf", "a.gguf", "none.gguf"))
    assert seen is not None
    assert seen.size_bytes == 23 * MIB
    assert await cache.look(("none.gguf",)) is None
    assert await cache.look(()) is None


async def test_what_is_read_ahead_is_cached_and_what_is_dropped_is_read_again(cache: WeightCache):
    names = ("a.gguf", "sub/b.gguf")
    await cache.drop(names)
    assert await cache.warm(names, bytes_per_s=FAST, go_on=always) == 23 * MIB
    seen = await cache.look(names)
    assert seen is not None
    assert seen.cached_bytes == 23 * MIB
    await cache.drop(names)
    left = await cache.look(names)
    assert left is not None
    assert left.cached_bytes is not None
    assert left.cached_bytes <= seen.cached_bytes


async def test_reading_ahead_ends_when_it_is_told_to(cache: WeightCache):
    answers = iter((True, True, False))
    read = await cache.warm(("a.gguf",), bytes_per_s=FAST, go_on=lambda: next(answers, False))
    assert read == 16 * MIB


async def test_nothing_to_read_is_no_error(cache: WeightCache):
    assert await cache.warm(("none.gguf",), bytes_per_s=FAST, go_on=always) == 0
    await cache.drop(("none.gguf",))
