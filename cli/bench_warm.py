"""``headstart bench warm``: what the file part of a load costs cold and warm, on real files.

Files are written into a folder of their own, dropped from the page cache, read as a load would
read them, dropped again, read ahead by the product's own executor, and read once more. What was
cached at each step is told by ``mincore``. Only the file part is measured: what a GPU needs for
the copy and the graph is the same either way.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from adapters.clock import ScaledClock
from adapters.page_cache import PIECE_BYTES, PageCache
from contracts.errors import Invalid

_MIB = 1024**2
NAME = "weights.gguf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: seconds of each reading, and what was cached before it (0 to 1)."""

    cold_read_s: float
    cold_cached_ratio: float
    warm_up_s: float
    warm_read_s: float
    warm_cached_ratio: float


def register(bench: typer.Typer) -> None:
    """Add the benchmark."""
    bench.command("warm")(bench_warm)


def bench_warm(
    size_mb: Annotated[int, typer.Option(min=1, max=1024**2, help="Size of the file.")] = 1024,
    rounds: Annotated[int, typer.Option(min=1, max=100, help="Rounds; the median counts.")] = 3,
    rate_mb: Annotated[
        float, typer.Option(min=1, help="MiB a second that are read ahead; high: as fast as goes.")
    ] = 1024.0**2,
    folder: Annotated[
        Path | None, typer.Option(help="Where the file is written. Default: a temporary folder.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One object as the last line.")] = False,
) -> None:
    """Time reading a file of weights with and without its being read ahead."""
    with tempfile.TemporaryDirectory(prefix="headstart-warm-", dir=folder) as place:
        _write(Path(place) / NAME, size_mb)
        cache = PageCache(Path(place), ScaledClock(1.0))
        found = [asyncio.run(one_round(cache, Path(place) / NAME, rate_mb)) for _ in range(rounds)]
    middle = sorted(found, key=lambda each: each.cold_read_s / each.warm_read_s)[len(found) // 2]
    figures = {
        "size_mb": size_mb,
        "rounds": rounds,
        **{name: round(value, 4) for name, value in asdict(middle).items()},
        "speed_up": round(middle.cold_read_s / middle.warm_read_s, 2),
    }
    if as_json:
        sys.stdout.write(json.dumps(figures) + "\n")
        return
    for name, value in figures.items():
        sys.stdout.write(f"{name:20} {value:10}\n")


async def one_round(cache: PageCache, path: Path, rate_mb: float) -> Round:
    """Drop, read, drop, read ahead, read."""
    await cache.drop((NAME,))
    cold_cached = await _cached_ratio(cache)
    cold_s = _read(path)
    await cache.drop((NAME,))
    began_s = time.perf_counter()
    await cache.warm((NAME,), bytes_per_s=rate_mb * _MIB, go_on=lambda: True)
    warm_up_s = time.perf_counter() - began_s
    warm_cached = await _cached_ratio(cache)
    return Round(
        cold_read_s=cold_s,
        cold_cached_ratio=cold_cached,
        warm_up_s=warm_up_s,
        warm_read_s=_read(path),
        warm_cached_ratio=warm_cached,
    )


async def _cached_ratio(cache: PageCache) -> float:
    seen = await cache.look((NAME,))
    if seen is None or seen.cached_bytes is None:
        raise Invalid("bench warm: what is cached of the file cannot be seen here")
    return seen.cached_bytes / seen.size_bytes


def _read(path: Path) -> float:
    """Read it from its beginning to its end, as a load without mmap does; the seconds it took."""
    buffer = bytearray(PIECE_BYTES)
    began_s = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - began_s


def _write(path: Path, size_mb: int) -> None:
    """Bytes that no file system can shrink; on the disk, since what is dirty is not dropped."""
    with path.open("wb") as file:
        for _ in range(size_mb):
            file.write(os.urandom(_MIB))
        file.flush()
        os.fsync(file.fileno())
