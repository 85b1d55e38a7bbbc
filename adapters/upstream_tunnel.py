"""A connection to LocalAI whose bytes are relayed as they are: ``contracts.upstream.Tunnel``."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl

from contracts.upstream import Broken, Unanswered, Unreachable

_READ_BYTES = 65_536


class SocketTunnel:
    """A connection whose bytes are relayed as they are."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, prefix: bytes = b""
    ) -> None:
        self._reader = reader
        self._writer = writer
        self.prefix = prefix

    async def read(self) -> bytes:
        """The next bytes, b"" at the end."""
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError as error:
            raise Broken(broken_reason(error)) from error

    async def write(self, data: bytes) -> None:
        """Send; returns when there is room for more."""
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as error:
            raise Broken(broken_reason(error)) from error

    def close(self) -> None:
        """Cut it."""
        self._writer.close()


async def open_socket_tunnel(
    host: str, port: int, *, is_tls: bool, connect_timeout_s: float, prefix: str
) -> SocketTunnel:
    """A fresh connection; raises Unreachable or Unanswered."""
    context = ssl.create_default_context() if is_tls else None
    try:
        async with asyncio.timeout(connect_timeout_s):
            reader, writer = await asyncio.open_connection(
                host, port, ssl=context, limit=_READ_BYTES
            )
    except TimeoutError:
        raise Unanswered("connecting took too long") from None
    except OSError as error:
        raise Unreachable(unreachable_reason(error)) from error
    return SocketTunnel(reader, writer, prefix=prefix.encode("ascii"))


def unreachable_reason(error: OSError) -> str:
    """Why there is no connection; for people, and without the address."""
    if isinstance(error, socket.gaierror):
        return "its name could not be resolved"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return "no connection"


def broken_reason(error: BaseException | None) -> str:
    """Why a connection ended; for people, and without the address."""
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()
    return "the connection was closed"
