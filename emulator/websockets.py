"""Websockets of the emulated server: the handshake, and messages of JSON both ways."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Mapping, MutableMapping
from http import HTTPStatus
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from emulator.context import Emulator
from emulator.frames import (
    BadFrame,
    Opcode,
    accept_of,
    close_frame,
    frame,
    read_message,
)
from emulator.http import Request, json_text, read_json
from emulator.keys import is_allowed
from emulator.talks import TALKS, Talk

_MAX_HEAD_BYTES = 65_536
_NORMAL = 1000
_NO_STATUS = 1005


class Left(Exception):
    """The caller has closed its side, or the connection broke."""


class Socket:
    """An open websocket. What is sent and received are JSON objects."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> Mapping[str, Any] | None:
        """The next message; None where it is no JSON object. Raises Left."""
        while True:
            try:
                message = await read_message(self._reader)
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise Left from error
            except BadFrame as error:
                self._writer.write(close_frame(error.code, str(error)))
                raise Left from error
            match message.opcode:
                case Opcode.PING:
                    self._writer.write(frame(Opcode.PONG, message.payload))
                case Opcode.CLOSE:
                    code = _NORMAL
                    if len(message.payload) >= 2:
                        (code,) = struct.unpack("!H", message.payload[:2])
                    self._writer.write(close_frame(_NORMAL if code == _NO_STATUS else code))
                    raise Left
                case Opcode.PONG:
                    pass
                case _:
                    return read_json(message.payload)

    async def send(self, event: Mapping[str, Any]) -> None:
        """One message."""
        self._writer.write(frame(Opcode.TEXT, json_text(event).encode()))
        await self._writer.drain()


class SocketProtocol(asyncio.StreamReaderProtocol):
    """uvicorn's ``ws`` protocol class; it gets the head of the handshake again as bytes."""

    def __init__(
        self, config: Config, server_state: ServerState, app_state: dict[str, Any]
    ) -> None:
        del app_state
        self._emulator: Emulator = config.app.emulator  # type: ignore[union-attr] # it is ours
        self._state = server_state
        self._connection: asyncio.BaseTransport | None = None
        super().__init__(asyncio.StreamReader(limit=_MAX_HEAD_BYTES), self._serve)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Uvicorn hands the connection over."""
        self._connection = transport
        self._state.connections.add(self)  # type: ignore[arg-type] # has what is called there
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller is gone."""
        self._state.connections.discard(self)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        """Uvicorn stops."""
        if self._connection is not None:
            self._connection.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._state.tasks.add(task)
        try:
            request = _request(await reader.readuntil(b"\r\n\r\n"))
            talk = TALKS.get(request.path.rstrip("/"))
            refusal = self._refusal(request, talk)
            if talk is None or refusal is not None:
                writer.write(_answer(refusal or HTTPStatus.NOT_FOUND))
                return
            key = request.headers.get("sec-websocket-key", "").encode("latin-1")
            writer.write(
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                b"Connection: Upgrade\r\nSec-WebSocket-Accept: " + accept_of(key) + b"\r\n\r\n"
            )
            await talk(self._emulator, request, Socket(reader, writer))
        except (Left, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._state.tasks.discard(task)
            writer.close()

    def _refusal(self, request: Request, talk: Talk | None) -> HTTPStatus | None:
        if not is_allowed(request, self._emulator.options.api_keys):
            return HTTPStatus.UNAUTHORIZED
        if talk is None:
            return HTTPStatus.NOT_FOUND
        return None if request.headers.get("sec-websocket-key") else HTTPStatus.BAD_REQUEST


def _request(head: bytes) -> Request:
    line, *lines = head[:-4].split(b"\r\n")
    method, target, _ = line.split(b" ", 2)
    path, _, query = target.partition(b"?")
    scope: MutableMapping[str, Any] = {
        "method": method.decode("latin-1"),
        "path": path.decode("latin-1"),
        "raw_path": path,
        "query_string": query,
        "scheme": "http",
        "headers": [
            (name.strip().lower(), value.strip())
            for name, _, value in (each.partition(b":") for each in lines)
        ],
    }

    async def nothing() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    return Request(scope, nothing)


def _answer(status: HTTPStatus) -> bytes:
    """An answer instead of the handshake."""
    error = {"code": status.value, "message": status.phrase, "type": ""}
    if status is HTTPStatus.UNAUTHORIZED:
        error |= {"message": "An authentication key is required", "type": "invalid_request_error"}
    if status is HTTPStatus.NOT_FOUND:
        error |= {"message": "Resource not found"}
    body = json_text({"error": error}).encode() + b"\n"
    return (
        b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nConnection: close\r\n"
        b"Content-Length: %d\r\n\r\n" % (status.value, status.phrase.encode(), len(body))
    ) + body
