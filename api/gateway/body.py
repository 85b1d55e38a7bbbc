"""The body of a request: bounded, looked at, kept as far as needed, and streamed on."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import AsyncIterator
from typing import IO, Protocol

from api.gateway.caller import Caller, CallerLeft
from api.gateway.detect import Bytes
from api.gateway.problems import Problem, body_too_large

_PIECE_BYTES = 262_144
_SMALL_BYTES = 32_768


class Sendable(Protocol):
    """A body as it goes on: see ``RequestBody``."""

    @property
    def size_bytes(self) -> int: ...  # noqa: D102

    @property
    def sent_bytes(self) -> int: ...  # noqa: D102

    @property
    def can_be_sent_again(self) -> bool: ...  # noqa: D102

    def outgoing(self) -> bytes | AsyncIterator[bytes]: ...  # noqa: D102

    def raise_early_end(self) -> None: ...  # noqa: D102


class SpoolRoom:
    """The memory that all bodies take together; where it is used up they go to files.

    Many callers that send a little less than one of them may keep in memory, and then wait,
    would else fill it.
    """

    def __init__(self, limit_bytes: int = 64 * 1024**2) -> None:
        self._limit_bytes = limit_bytes
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether only small bodies are kept in memory now."""
        return self.used_bytes > self._limit_bytes


class RequestBody:
    """A body while it arrives.

    Up to ``spool_bytes`` are kept in memory; what is kept beyond goes to a file without a
    name. ``outgoing`` gives all that was kept, and then what still arrives.

    Parameters
    ----------
    limit_bytes : int
        Beyond it reading raises a Problem (413).
    room : SpoolRoom
        Shared with the other bodies. Without one it is this body's alone.

    Attributes
    ----------
    sent_bytes : int
        What ``outgoing`` has handed on, while it is an iterator.
    can_be_sent_again : bool
        Whether all that came is still here, so that ``outgoing`` can be asked for again.
    problem : Problem or None
        Why reading ended early, unless the caller has left.
    """

    def __init__(
        self,
        caller: Caller,
        *,
        limit_bytes: int,
        spool_bytes: int,
        room: SpoolRoom | None = None,
    ) -> None:
        self._caller = caller
        self._room = room or SpoolRoom()
        self._limit_bytes = limit_bytes
        self._spool_bytes = spool_bytes
        self._pieces: list[bytes] = []
        self._in_memory_bytes = 0
        self._file: IO[bytes] | None = None
        self._map: mmap.mmap | None = None
        self.size_bytes = 0
        self.sent_bytes = 0
        self.is_complete = False
        self.can_be_sent_again = True
        self.problem: Problem | None = None

    async def read_piece(self) -> bytes:
        """The next piece, which is kept too. Raises CallerLeft, or Problem past the limit."""
        data = await self._receive()
        self._keep(data)
        return data

    async def read_all(self) -> None:
        """Read to the end."""
        while not self.is_complete:
            await self.read_piece()

    def view(self) -> Bytes:
        """All that was kept so far, without copying what is on disk."""
        if self._file is None:
            self._join()
            return self._pieces[0] if self._pieces else b""
        self._spill()
        self._file.flush()
        self._map = mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ)
        return memoryview(self._map)

    def outgoing(self) -> bytes | AsyncIterator[bytes]:
        """The body as it goes on: whole where it is small and here, else piece by piece."""
        if self.is_complete and self._file is None:
            self._join()
            return self._pieces[0] if self._pieces else b""
        return self._stream()

    def raise_early_end(self) -> None:
        """Raise what ended the reading, if anything did: Problem or CallerLeft."""
        if self.problem is not None:
            raise self.problem
        if self._caller.has_left:
            raise CallerLeft

    def close(self) -> None:
        """Give the memory and the file back."""
        self._drop_pieces()
        self._map = None
        if self._file is not None:
            self._file.close()

    async def _receive(self) -> bytes:
        data, more = await self._caller.read()
        self.size_bytes += len(data)
        if self.size_bytes > self._limit_bytes:
            self.problem = body_too_large(self._limit_bytes)
            raise self.problem
        self.is_complete = not more
        return data

    async def _stream(self) -> AsyncIterator[bytes]:
        if self._file is not None:
            self._spill()
            self._file.seek(0)
            while piece := self._file.read(_PIECE_BYTES):
                yield piece
                self.sent_bytes += len(piece)
        for piece in self._pieces:
            yield piece
            self.sent_bytes += len(piece)
        if self._pieces:
            self.can_be_sent_again = False
            self._drop_pieces()
        while not self.is_complete:
            data = await self._receive()
            if data:
                self.can_be_sent_again = False
                yield data
                self.sent_bytes += len(data)
        self._caller.watch()

    def _keep(self, data: bytes) -> None:
        if not data:
            return
        self._pieces.append(data)
        self._in_memory_bytes += len(data)
        self._room.used_bytes += len(data)
        is_small = self._in_memory_bytes <= _SMALL_BYTES
        if self._in_memory_bytes > self._spool_bytes or (self._room.is_full and not is_small):
            if self._file is None:
                self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()
            self._spill()

    def _spill(self) -> None:
        if self._file is not None and self._pieces:
            self._file.seek(0, 2)
            self._file.writelines(self._pieces)
            self._drop_pieces()

    def _drop_pieces(self) -> None:
        self._pieces.clear()
        self._room.used_bytes -= self._in_memory_bytes
        self._in_memory_bytes = 0

    def _join(self) -> None:
        if len(self._pieces) > 1:
            self._pieces = [b"".join(self._pieces)]
