"""Connections that can break: relays between two parts, on TCP in and TCP or a unix socket out."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from typing import cast

_RESET = struct.pack("ii", 1, 0)


class Relay:
    """Listens on a port and passes on to a target, and can be told to do worse.

    Attributes
    ----------
    port : int
        Where it listens, on this machine alone; known after ``start``.
    opened, broken : int
        Connections so far, and those that it reset.
    """

    def __init__(self, name: str, host: str = "127.0.0.1", port: int = 0, path: str = "") -> None:
        self.name = name
        self.port = 0
        self.opened = 0
        self.broken = 0
        self._to = (host, port, path)
        self._pairs: set[_Pair] = set()
        self._server: asyncio.Server | None = None
        self._refuses = False
        self._stalls_new = False
        self.lag_s = 0.0

    async def start(self) -> None:
        """Listen on a free port."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Pair(self), "127.0.0.1", 0, backlog=512)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Cut everything off."""
        if self._server is not None:
            self._server.close()
        self.reset()

    def reset(self) -> None:
        """Reset every connection, on both sides."""
        for pair in tuple(self._pairs):
            pair.reset()

    def stall(self, *, new: bool) -> None:
        """Forward nothing on the connections that there are; ``new``: nor on any that comes."""
        self._stalls_new = new
        for pair in tuple(self._pairs):
            pair.stall()

    def refuse(self) -> None:
        """Reset every connection, and every one that comes."""
        self._refuses = True
        self.reset()

    def heal(self) -> None:
        """Work again. Connections that stood still are reset: nobody knows them any more."""
        self._refuses = self._stalls_new = False
        self.lag_s = 0.0
        for pair in tuple(self._pairs):
            if pair.stalled:
                pair.reset()

    async def connect(self, pair: _Pair) -> None:
        """Open the way to the target for a new connection."""
        self._pairs.add(pair)
        self.opened += 1
        if self._refuses:
            pair.reset()
            return
        if self._stalls_new:
            pair.stall()
            return
        loop = asyncio.get_running_loop()
        host, port, path = self._to
        try:
            if path:
                await loop.create_unix_connection(lambda: pair.far, path)
            else:
                await loop.create_connection(lambda: pair.far, host, port)
        except OSError:
            pair.reset()

    def forget(self, pair: _Pair) -> None:
        """It is over."""
        self._pairs.discard(pair)


class _End(asyncio.Protocol):
    """One side; what comes in goes out at the other."""

    def __init__(self, pair: _Pair | None = None) -> None:
        self.pair = pair
        self.transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._late: deque[tuple[float, bytes | None]] = deque()

    @property
    def other(self) -> _End:
        assert self.pair is not None
        return self.pair.far if self is self.pair else self.pair

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        for data in self._waiting:
            self.transport.write(data)
        self._waiting.clear()
        pair = self.pair
        if pair is not self and pair is not None:
            if pair.over:
                self.abort()
            elif pair.stalled:
                self.reading(False)

    def data_received(self, data: bytes) -> None:
        assert self.pair is not None
        self._pass_on(data)

    def eof_received(self) -> bool:
        self._pass_on(None)
        return True

    def _pass_on(self, data: bytes | None) -> None:
        """At once or later, and in the order in which it came; None: the end."""
        assert self.pair is not None
        lag_s = self.pair.relay.lag_s
        if lag_s <= 0.0 and not self._late:
            self._deliver(data)
            return
        loop = asyncio.get_running_loop()
        self._late.append((loop.time() + lag_s, data))
        if len(self._late) == 1:
            loop.call_at(self._late[0][0], self._deliver_late)

    def _deliver_late(self) -> None:
        loop = asyncio.get_running_loop()
        while self._late and self._late[0][0] <= loop.time():
            self._deliver(self._late.popleft()[1])
        if self._late:
            loop.call_at(self._late[0][0], self._deliver_late)

    def _deliver(self, data: bytes | None) -> None:
        if data is None:
            self.other.write_eof()
        else:
            self.other.write(data)

    def write(self, data: bytes) -> None:
        if self.transport is None:
            self._waiting.append(data)
        elif not self.transport.is_closing():
            self.transport.write(data)

    def write_eof(self) -> None:
        assert self.pair is not None
        self.pair.ends += 1
        if self.transport is None or self.pair.ends == 2:
            self.pair.close()
        elif not self.transport.is_closing():
            with contextlib.suppress(OSError, RuntimeError):
                self.transport.write_eof()

    def pause_writing(self) -> None:
        self.other.reading(False)

    def resume_writing(self) -> None:
        self.other.reading(True)

    def reading(self, wanted: bool) -> None:
        transport, pair = self.transport, self.pair
        if transport is None or transport.is_closing() or pair is None:
            return
        if wanted and not pair.stalled:
            transport.resume_reading()
        elif not wanted:
            transport.pause_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        pair = self.pair
        assert pair is not None
        pair.relay.forget(pair)
        if exc is not None:
            pair.reset()
        else:
            pair.close()

    def abort(self) -> None:
        transport = self.transport
        if transport is None or transport.is_closing():
            return
        found = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        transport.abort()


class _Pair(_End):
    """A connection of the relay: itself the side of whoever called, and ``far``."""

    def __init__(self, relay: Relay) -> None:
        super().__init__()
        self.pair = self
        self.relay = relay
        self.far = _End(self)
        self.stalled = False
        self.over = False
        self.ends = 0
        self._connecting: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._connecting = asyncio.get_running_loop().create_task(self.relay.connect(self))

    def stall(self) -> None:
        self.stalled = True
        self.reading(False)
        self.far.reading(False)

    def reset(self) -> None:
        """End it as a machine does that knows nothing of it."""
        self.relay.broken += not self.over
        self.over = True
        self.relay.forget(self)
        self.abort()
        self.far.abort()

    def close(self) -> None:
        """Send what is left, and end it."""
        self.over = True
        for end in (self, self.far):
            if end.transport is not None and not end.transport.is_closing():
                end.transport.close()
