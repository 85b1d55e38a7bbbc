"""Websockets as uvicorn hands them over: a connection whose bytes are relayed as they are.

Frames are not taken apart: subprotocols, extensions, pings and close codes pass because
nobody here reads them. The app gets a ``websocket`` scope whose events are
``tunnel.bytes`` and ``tunnel.disconnect`` in, ``tunnel.bytes`` and ``tunnel.close`` out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import unquote

from uvicorn.config import Config
from uvicorn.server import ServerState

Message = MutableMapping[str, Any]
App = Callable[..., Awaitable[None]]

_MAX_HEAD_BYTES = 65_536
_READ_BYTES = 65_536


class TunnelProtocol(asyncio.StreamReaderProtocol):
    """uvicorn's ``ws`` protocol class; it gets the head of the handshake again as bytes.

    ``on_lost`` is called when its connection is gone.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        on_lost: Callable[[], None] = lambda: None,
    ) -> None:
        del app_state  # there is no lifespan
        self._on_lost = on_lost
        self._app: App = config.loaded_app
        self._server_state = server_state
        self._connection: asyncio.BaseTransport | None = None
        super().__init__(asyncio.StreamReader(limit=_MAX_HEAD_BYTES), self._serve)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Uvicorn hands the connection over."""
        self._connection = transport
        self._server_state.connections.add(self)  # type: ignore[arg-type] # has what is called there
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller is gone."""
        self._server_state.connections.discard(self)
        self._on_lost()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Uvicorn stops: no tunnel may hold it up, since it would never end by itself."""
        if self._connection is not None:
            self._connection.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            connection = _Connection(reader, writer)
            await self._app(_scope(head, writer), connection.receive, connection.send)
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()


class _Connection:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> Message:
        try:
            data = await self._reader.read(_READ_BYTES)
        except ConnectionError:
            data = b""
        if not data:
            return {"type": "tunnel.disconnect"}
        return {"type": "tunnel.bytes", "bytes": data}

    async def send(self, message: Message) -> None:
        if message["type"] == "tunnel.close":
            self._writer.close()
            return
        self._writer.write(message["bytes"])
        await self._writer.drain()


def _scope(head: bytes, writer: asyncio.StreamWriter) -> dict[str, Any]:
    request_line, *lines = head[:-4].split(b"\r\n")
    method, target, _ = request_line.split(b" ", 2)
    raw_path, _, query = target.partition(b"?")
    headers = []
    for line in lines:
        name, _, value = line.partition(b":")
        headers.append((name.strip().lower(), value.strip()))
    return {
        "type": "websocket",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "method": method.decode("ascii"),
        "scheme": "http",
        "path": unquote(raw_path.decode("ascii", "replace")),
        "raw_path": raw_path,
        "query_string": query,
        "headers": headers,
        "client": writer.get_extra_info("peername") or None,
    }
