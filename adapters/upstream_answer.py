"""An answer of LocalAI's that is coming in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from contracts.upstream import Broken, RawHeaders

if TYPE_CHECKING:
    from adapters.upstream_connection import HttpConnection

HIGH_WATER_BYTES = 262_144
"""So much of an answer that nobody reads is kept; then LocalAI is made to wait."""


class HttpAnswer:
    """An answer that is coming in: ``contracts.upstream.UpstreamResponse``."""

    __slots__ = ("_buffered_bytes", "_connection", "_is_whole", "_pieces", "_waiter", "error",
                 "headers", "is_head_in", "sender", "status")  # fmt: skip

    def __init__(self, connection: HttpConnection) -> None:
        self._connection = connection
        self._pieces: list[bytes] = []
        self._buffered_bytes = 0
        self._is_whole = False
        self._waiter: asyncio.Future[None] | None = None
        self.status = 0
        self.headers: RawHeaders = ()
        self.is_head_in = False
        self.error: Broken | None = None
        self.sender: asyncio.Task[None] | None = None

    @property
    def is_whole(self) -> bool:
        """Whether its end has come, be it read or not."""
        return self._is_whole

    @property
    def is_complete(self) -> bool:
        """Whether all of it was read."""
        return self._is_whole and not self._pieces

    async def head(self) -> None:
        """Wait for its head. Raises Broken."""
        while not self.is_head_in:
            if self.error is not None:
                raise self.error
            await self._something()

    async def read(self) -> bytes:
        """The next bytes as soon as there are any, b"" at the end. Raises Broken."""
        while not self._pieces:
            if self._is_whole:
                return b""
            if self.error is not None:
                raise self.error
            await self._something()
        pieces = self._pieces
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        pieces.clear()
        if not self._is_whole:
            self._connection.resume_reading()
        self._buffered_bytes = 0
        return data

    def close(self) -> None:
        """Let go of it; before its end this cuts the connection."""
        if not self._is_whole:
            self._connection.cut(Broken("the answer was let go of"))
        self._pieces.clear()

    def take(self, data: bytes) -> bool:
        """A piece of the body has come; True: that is enough for now."""
        self._pieces.append(data)
        self._buffered_bytes += len(data)
        return self._buffered_bytes > HIGH_WATER_BYTES

    def end(self) -> None:
        """It is whole."""
        self._is_whole = True

    def fail(self, error: Broken) -> None:
        """Nothing more comes."""
        if self.error is None and not self._is_whole:
            self.error = error

    def wake(self) -> None:
        """Let who waits look again."""
        waiter = self._waiter
        if waiter is not None:
            self._waiter = None
            if not waiter.done():
                waiter.set_result(None)

    async def _something(self) -> None:
        self._waiter = self._connection.loop.create_future()
        await self._waiter
