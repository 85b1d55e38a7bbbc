"""Frames of websockets (RFC 6455), as much as a server of text messages needs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import struct
from dataclasses import dataclass
from enum import IntEnum

MAX_MESSAGE_BYTES = 16 * 1024**2
_MAGIC = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FINAL = 0x80
_MASKED = 0x80
_SHORT, _LONG = 126, 127


class Opcode(IntEnum):
    """What a frame is."""

    CONTINUATION = 0
    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class BadFrame(Exception):
    """The peer does not speak the protocol, or too much of it; ``code`` tells it why."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True, slots=True)
class Frame:
    """One frame, unmasked."""

    opcode: Opcode
    payload: bytes
    is_final: bool = True


def accept_of(key: bytes) -> bytes:
    """What answers the caller's ``Sec-WebSocket-Key``."""
    return base64.b64encode(hashlib.sha1(key + _MAGIC, usedforsecurity=False).digest())


def frame(opcode: Opcode, payload: bytes) -> bytes:
    """A whole frame as a server sends it: not masked."""
    length = len(payload)
    if length < _SHORT:
        head = bytes((_FINAL | opcode, length))
    elif length < 1 << 16:
        head = struct.pack("!BBH", _FINAL | opcode, _SHORT, length)
    else:
        head = struct.pack("!BBQ", _FINAL | opcode, _LONG, length)
    return head + payload


def close_frame(code: int, reason: str = "") -> bytes:
    """The last frame of a server."""
    return frame(Opcode.CLOSE, struct.pack("!H", code) + reason.encode())


async def read_frame(reader: asyncio.StreamReader) -> Frame:
    """The next frame of a client, whose frames must be masked.

    Raises
    ------
    BadFrame
        What came is none.
    asyncio.IncompleteReadError
        The connection has ended.
    """
    first, second = await reader.readexactly(2)
    if first & 0x70:
        raise BadFrame(1002, "no extension was agreed on")
    if not second & _MASKED:
        raise BadFrame(1002, "frames of a client must be masked")
    length = second & 0x7F
    if length == _SHORT:
        (length,) = struct.unpack("!H", await reader.readexactly(2))
    elif length == _LONG:
        (length,) = struct.unpack("!Q", await reader.readexactly(8))
    if length > MAX_MESSAGE_BYTES:
        raise BadFrame(1009, "the message is too large")
    mask = await reader.readexactly(4)
    data = await reader.readexactly(length)
    try:
        opcode = Opcode(first & 0x0F)
    except ValueError:
        raise BadFrame(1002, "unknown opcode") from None
    return Frame(opcode, _unmasked(data, mask), bool(first & _FINAL))


async def read_message(reader: asyncio.StreamReader) -> Frame:
    """The next message or control frame; the pieces of a message are put together."""
    whole = await read_frame(reader)
    if whole.is_final or whole.opcode >= Opcode.CLOSE:
        return whole
    data = bytearray(whole.payload)
    while True:
        piece = await read_frame(reader)
        if piece.opcode is not Opcode.CONTINUATION:
            raise BadFrame(1002, "a message in pieces was not ended")
        data += piece.payload
        if len(data) > MAX_MESSAGE_BYTES:
            raise BadFrame(1009, "the message is too large")
        if piece.is_final:
            return Frame(whole.opcode, bytes(data))


def _unmasked(data: bytes, mask: bytes) -> bytes:
    if not data:
        return b""
    key = mask * (len(data) // 4 + 1)
    number = int.from_bytes(data, "big") ^ int.from_bytes(key[: len(data)], "big")
    return number.to_bytes(len(data), "big")
