from __future__ import annotations

import asyncio
import struct

import pytest

from emulator.frames import (
    MAX_MESSAGE_BYTES,
    BadFrame,
    Frame,
    Opcode,
    accept_of,
    close_frame,
    frame,
    read_message,
)

MASK = b"\x01\x02\x03\x04"


def sent(opcode: int, payload: bytes, *, final: bool = True, masked: bool = True) -> bytes:
    """A frame as a client sends it."""
    first, length = (0x80 if final else 0) | opcode, len(payload)
    mask_bit = 0x80 if masked else 0
    if length < 126:
        head = bytes((first, mask_bit | length))
    elif length < 65_536:
        head = struct.pack("!BBH", first, mask_bit | 126, length)
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, length)
    data = bytes(byte ^ MASK[at % 4] for at, byte in enumerate(payload))
    return head + MASK + data if masked else head + payload


async def read(data: bytes) -> Frame:
    reader = asyncio.StreamReader(limit=2**20)
    reader.feed_data(data)
    reader.feed_eof()
    return await read_message(reader)


def test_the_answer_to_a_key_is_the_one_of_the_standard():
    assert accept_of(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize("length", [0, 1, 125, 126, 127, 65_535, 65_536])
async def test_messages_of_every_length(length: int):
    payload = bytes(number % 251 for number in range(length))
    assert await read(sent(Opcode.TEXT, payload)) == Frame(Opcode.TEXT, payload)
    ours = frame(Opcode.TEXT, payload)
    assert ours.endswith(payload)
    assert ours[1] & 0x80 == 0, "a server does not mask"
    assert len(ours) - length == (2 if length < 126 else 4 if length < 65_536 else 10)


async def test_a_message_in_pieces_is_put_together():
    pieces = sent(1, b"one ", final=False) + sent(0, b"two ", final=False) + sent(0, b"three")
    assert await read(pieces) == Frame(Opcode.TEXT, b"one two three")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (sent(1, b"x", masked=False), 1002),
        (sent(1 | 0x40, b"x"), 1002),
        (sent(5, b"x"), 1002),
        (sent(1, b"x", final=False) + sent(1, b"y"), 1002),
        (struct.pack("!BBQ", 0x81, 0x80 | 127, MAX_MESSAGE_BYTES + 1) + MASK, 1009),
    ],
)
async def test_what_is_no_frame_is_refused(data: bytes, code: int):
    with pytest.raises(BadFrame) as caught:
        await read(data)
    assert caught.value.code == code


def test_a_close_says_why():
    assert close_frame(1001, "bye") == b"\x88\x05\x03\xe9bye"
