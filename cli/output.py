"""Where the lines of child processes go: to the terminal with a name before each, or to files."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TextIO

from adapters.whole_file import private

MAX_FILE_BYTES = 5 * 1024**2
"""A log and the one before it: a process never fills the disk with more than twice this."""

_MAX_LINE_BYTES = 16 * 1024
_KEPT_LINES = 20

WriteLine = Callable[[bytes], None]


class PrefixedTerminal:
    """Lines of several processes on one stream, each with its process's name."""

    def __init__(self, stream: TextIO, *, width: int = 10) -> None:
        self._stream = stream
        self._width = width
        self._gone = False

    def writer(self, name: str) -> WriteLine:
        """What writes a line of the process ``name``."""

        def write(line: bytes) -> None:
            if self._gone:
                return
            try:
                self._stream.write(f"{name:<{self._width}} | {line.decode(errors='replace')}\n")
                self._stream.flush()
            except (OSError, ValueError):
                # Whoever read the terminal is gone; the processes go on.
                self._gone = True

        return write


class RotatedFile:
    """One log file that starts over at a size, keeping the one before it as ``.1``."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_FILE_BYTES) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._max_bytes = max_bytes
        self._file: BinaryIO = _appended(path)
        self._size = self._file.tell()
        self.lost_lines = 0

    def write(self, line: bytes) -> None:
        """Append one line. What a full disk does not take is lost and counted."""
        if self._size > self._max_bytes:
            self._file.close()
            self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._file = _appended(self._path)
            self._size = 0
        try:
            self._file.write(line + b"\n")
            self._file.flush()
        except OSError:
            self.lost_lines += 1
            return
        self._size += len(line) + 1

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _appended(path: Path) -> BinaryIO:
    """For its user alone, whatever the umask: lines name models and callers' addresses."""
    return open(path, "ab", opener=private)


class Tail:
    """The last lines of a process, so that its end can be explained."""

    def __init__(self) -> None:
        self._lines: deque[bytes] = deque(maxlen=_KEPT_LINES)

    def write(self, line: bytes) -> None:
        """Remember one line."""
        if line.strip():
            self._lines.append(line)

    @property
    def last(self) -> str:
        """The last line that says something; empty when there was none."""
        return self._lines[-1].decode(errors="replace").strip() if self._lines else ""


async def relay_pipe(read_end: int, writers: tuple[WriteLine, ...]) -> None:
    """Hand each line that comes out of a pipe to every writer, until its end; closes it.

    Long lines come in pieces.
    """
    source = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(source), os.fdopen(read_end, "rb", 0)
    )
    try:
        await _relay(source, writers)
    finally:
        transport.close()


async def _relay(source: asyncio.StreamReader, writers: tuple[WriteLine, ...]) -> None:
    rest = b""
    while chunk := await source.read(65536):
        *lines, rest = (rest + chunk).split(b"\n")
        while len(rest) > _MAX_LINE_BYTES:
            lines.append(rest[:_MAX_LINE_BYTES])
            rest = rest[_MAX_LINE_BYTES:]
        for line in lines:
            for write in writers:
                write(line.rstrip(b"\r"))
    if rest:
        for write in writers:
            write(rest)
