"""The server's append-only file, where a full disk has left a hole in it.

After a write that the disk took in part the server shortens its file to what was whole, and then
writes on where it was: where it made the file itself, in a rewrite, the bytes between are zeros
(Redis 7 to Valkey 9, which open that one file without O_APPEND). It refuses the file at its next
start, although nothing in it is lost. Repair tools cut off everything from the hole on.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

_PATTERN = "appendonlydir/*.incr.aof"
_HOLE = b"\0"
_CHUNK = 1 << 20


def mend(folder: Path) -> int:
    """Take holes out of the files in a server's folder; how many bytes went.

    The file as it was is kept beside it as ``.holed``. A file with any other damage stays as it is.

    Raises
    ------
    OSError
        The folder takes no files, such as on a full disk.
    """
    return sum(_mend_file(path) for path in sorted(folder.glob(_PATTERN)))


def holes(data: bytes | mmap.mmap) -> list[tuple[int, int]] | None:
    """Where zeros stand between two commands, as (begin, end); None: it is no such file.

    A command that ends early at the end of the file is no damage, the server reads up to it.
    """
    found: list[tuple[int, int]] = []
    at, size = 0, len(data)
    while at < size:
        start = data[at : at + 1]
        if start == _HOLE:
            end = _after_zeros(data, at)
            found.append((at, end))
            at = end
        elif start == b"#":
            end = data.find(b"\n", at)
            at = size if end < 0 else end + 1
        elif start == b"*":
            after = _after_command(data, at)
            if after is None:
                return None
            at = after
        else:
            return None
    return found


def _after_zeros(data: bytes | mmap.mmap, at: int) -> int:
    size = len(data)
    while at < size:
        chunk = data[at : at + _CHUNK]
        rest = chunk.lstrip(_HOLE)
        at += len(chunk) - len(rest)
        if rest:
            break
    return at


def _after_command(data: bytes | mmap.mmap, at: int) -> int | None:
    """Where the command ends; the file's end where it is cut off; None: it is none."""
    words = _number(data, at, b"*")
    if words is None:
        return len(data) if data.find(b"\n", at) < 0 else None
    count, at = words
    for _ in range(count):
        length = _number(data, at, b"$")
        if length is None:
            return len(data) if data.find(b"\n", at) < 0 else None
        at = length[1] + length[0] + 2
        if at > len(data):
            return len(data)
        if data[at - 2 : at] != b"\r\n":
            return None
    return at


def _number(data: bytes | mmap.mmap, at: int, sign: bytes) -> tuple[int, int] | None:
    """The number of a line such as ``$12``, and where the next line begins."""
    end = data.find(b"\r\n", at, at + 32)
    digits = data[at + 1 : end] if end >= 0 else b""
    if data[at : at + 1] != sign or not digits.isdigit():
        return None
    return int(digits), end + 2


def _mend_file(path: Path) -> int:
    if not path.stat().st_size:
        return 0
    whole, holed = path.with_suffix(".whole"), path.with_suffix(".holed")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        found = holes(data)
        if not found:
            return 0
        try:
            _write_without(data, found, whole)
            holed.unlink(missing_ok=True)
            # By a second name and not by a rename: a death leaves the old file or the new one.
            holed.hardlink_to(path)
            whole.replace(path)
        finally:
            whole.unlink(missing_ok=True)  # half of one, where the disk is full
    return sum(end - begin for begin, end in found)


def _write_without(data: mmap.mmap, found: list[tuple[int, int]], whole: Path) -> None:
    with whole.open("wb") as out:
        at = 0
        for begin, end in found:
            _copy(data, at, begin, out.fileno())
            at = end
        _copy(data, at, len(data), out.fileno())
        os.fsync(out.fileno())


def _copy(data: mmap.mmap, begin: int, end: int, to: int) -> None:
    while begin < end:
        begin += os.write(to, data[begin : min(end, begin + _CHUNK)])
