"""Weights in the page cache: reads files ahead, sees what is cached, lets go of them.

Implements ``contracts.ports.WeightCache`` for a models folder that is mounted here, on the
machine whose kernel caches it. Everything that may block runs in a thread.

``posix_fadvise(WILLNEED)`` alone is a hint of which the kernel takes a few MiB (measured: 3 % of
256 MiB), so that each piece is read for real, into one buffer that is used again. ``mincore``
tells the truth only to who owns a file or may write it; for others everything would look cached.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adapters.model_weights import WeightsPlace, place_of
from adapters.probes.cgroups import limits_of
from adapters.probes.host_memory import machine_memory
from contracts.errors import Transient
from contracts.ports import Clock, FileWarmth
from contracts.world import HostMemory

PIECE_BYTES = 8 * 1024**2
MAX_FILES = 256
"""Files of one model that are looked at, those of a folder of weights included."""

SAMPLED_ABOVE_BYTES = 1024**3
SAMPLES = 128
SAMPLE_BYTES = 4 * 1024**2
"""Of a large file so many pieces are looked at, evenly spread: half a GiB tells enough."""

_NOBODY = 65534
_SHARED = 1
_READ = 1
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")

_LOWEST_BIT = bytes(value & 1 for value in range(256))
"""Of each page's byte the lowest bit says whether it is cached; the others are reserved."""

_LIBC = ctypes.CDLL(None, use_errno=True)
_LIBC.mmap.restype = ctypes.c_void_p
_LIBC.mmap.argtypes = [
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long,
]  # fmt: skip
_LIBC.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
_LIBC.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
_MAP_FAILED = ctypes.c_void_p(-1).value


def is_supported() -> bool:
    """Whether this system lets files be read ahead and let go."""
    return hasattr(os, "posix_fadvise")


class PageCache:
    """One models folder.

    Parameters
    ----------
    folder : Path
        LocalAI's models folder, as it is mounted here. It need not exist yet.
    clock : Clock
        Waits between pieces; the rate is in real seconds, whatever the time scale.
    """

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._folder = folder
        self._clock = clock

    async def look(self, files: tuple[str, ...]) -> FileWarmth | None:
        """How large they are and what of them is cached; None: none of them is there."""
        return await asyncio.to_thread(self._look, files)

    async def warm(
        self, files: tuple[str, ...], *, bytes_per_s: float, go_on: Callable[[], bool]
    ) -> int:
        """Read what is not cached yet, at most that fast, while ``go_on`` says so."""
        done = 0
        buffer = bytearray(PIECE_BYTES)
        for path in await asyncio.to_thread(self._found, files):
            offset = 0
            while go_on():
                began_s = time.monotonic()
                try:
                    read = await asyncio.to_thread(_read_piece, path, offset, buffer)
                except OSError as error:
                    raise Transient(f"{path.name}: {error.strerror}") from error
                if not read:
                    break
                offset += read
                done += read
                rest_s = read / bytes_per_s - (time.monotonic() - began_s)
                if rest_s > 0:
                    await self._clock.sleep(rest_s * self._clock.scale)
        return done

    async def drop(self, files: tuple[str, ...]) -> None:
        """They need not be cached any more. Pages that somebody has mapped stay."""
        await asyncio.to_thread(self._drop, files)

    async def host(self) -> HostMemory | None:
        """Memory of this machine, or of the control group that we are in."""
        return await asyncio.to_thread(_host)

    def _look(self, files: tuple[str, ...]) -> FileWarmth | None:
        size, cached, is_seen, is_there = 0, 0, True, False
        for path in self._found(files):
            try:
                with _opened(path) as descriptor:
                    status = os.fstat(descriptor)
                    size += status.st_size
                    is_there = True
                    if is_seen and may_see(path, status):
                        cached += cached_bytes(descriptor, status.st_size)
                    else:
                        is_seen = False
            except OSError:
                continue  # gone meanwhile, or not ours to read: as if it were not there
        if not is_there:
            return None
        return FileWarmth(size_bytes=size, cached_bytes=cached if is_seen else None)

    def _drop(self, files: tuple[str, ...]) -> None:
        for path in self._found(files):
            try:
                with _opened(path) as descriptor:
                    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            except OSError:
                continue  # gone meanwhile: nothing of it is cached

    def _found(self, files: tuple[str, ...]) -> list[Path]:
        """The files that are there, each once; of a folder the files in it."""
        found: dict[Path, None] = {}
        for name in files:
            if place_of(name) is not WeightsPlace.FOLDER:
                continue
            path = self._folder / name
            try:
                if path.is_dir():
                    inside = sorted(each for each in path.iterdir() if each.is_file())
                    found.update(dict.fromkeys(inside[:MAX_FILES]))
                elif path.is_file():
                    found[path] = None
            except OSError:
                continue  # a name that is too long, or a folder that we may not see
        return list(found)[:MAX_FILES]


def may_see(path: Path, status: os.stat_result) -> bool:
    """Whether ``mincore`` tells us the truth about a file."""
    user = os.geteuid()
    is_owner = status.st_uid == user or (user == 0 and status.st_uid != _NOBODY)
    return is_owner or os.access(path, os.W_OK)


def cached_bytes(descriptor: int, size_bytes: int) -> int:
    """What of an open file is in the page cache; of a large one estimated by samples."""
    if size_bytes <= SAMPLED_ABOVE_BYTES:
        return _resident_bytes(descriptor, 0, size_bytes)
    step = (size_bytes - SAMPLE_BYTES) // (SAMPLES - 1) // _PAGE_BYTES * _PAGE_BYTES
    seen = sum(
        _resident_bytes(descriptor, number * step, SAMPLE_BYTES) for number in range(SAMPLES)
    )
    return int(size_bytes * (seen / (SAMPLES * SAMPLE_BYTES)))


def _resident_bytes(descriptor: int, offset: int, length: int) -> int:
    if not length:
        return 0
    address = _LIBC.mmap(None, length, _READ, _SHARED, descriptor, offset)
    if address == _MAP_FAILED:
        raise OSError(ctypes.get_errno(), "mmap failed")
    pages = -(-length // _PAGE_BYTES)
    vector = ctypes.create_string_buffer(pages)
    try:
        if _LIBC.mincore(address, length, vector) != 0:
            raise OSError(ctypes.get_errno(), "mincore failed")
    finally:
        _LIBC.munmap(address, length)
    resident = vector.raw.translate(_LOWEST_BIT).count(1)
    return min(length, resident * _PAGE_BYTES)


def _read_piece(path: Path, offset: int, buffer: bytearray) -> int:
    """Read one piece, and tell the kernel of the next."""
    with _opened(path) as descriptor:
        read = os.preadv(descriptor, [buffer], offset)
        os.posix_fadvise(descriptor, offset + read, PIECE_BYTES, os.POSIX_FADV_WILLNEED)
        return read


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(0, "not a regular file")
        yield descriptor
    finally:
        os.close(descriptor)


def _host() -> HostMemory | None:
    """What this process may fill: a page is counted to the group of who read it first."""
    machine = machine_memory()
    if machine is None:
        return None
    total, available = machine.total_bytes, machine.available_bytes
    group = limits_of()
    if group.memory_limit_bytes is not None:
        total = min(total, group.memory_limit_bytes)
        available = min(available, max(0, total - (group.memory_used_bytes or 0)))
    return HostMemory(total_bytes=total, available_bytes=available)
