"""What of a body is kept in memory, and what is not."""

from __future__ import annotations

import pytest

from api.gateway.body import RequestBody, SpoolRoom


class _Caller:
    """Sends pieces, and the end with the last one."""

    has_left = False

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def read(self) -> tuple[bytes, bool]:
        return self._pieces.pop(0), bool(self._pieces)

    def watch(self) -> None:
        """As the real one."""


def body_of(*pieces: bytes, room: SpoolRoom, spool_bytes: int = 1_000_000) -> RequestBody:
    caller = _Caller(*pieces)
    return RequestBody(caller, limit_bytes=10**9, spool_bytes=spool_bytes, room=room)  # type: ignore[arg-type] # enough of one


async def all_of(body: RequestBody) -> bytes:
    outgoing = body.outgoing()
    if isinstance(outgoing, bytes):
        return outgoing
    return b"".join([piece async for piece in outgoing])


async def test_all_bodies_together_have_a_bound_in_memory():
    room = SpoolRoom(limit_bytes=250_000)
    bodies = [body_of(b"x" * 99_000, b"y" * 1_000, room=room) for _ in range(10)]
    for body in bodies:
        await body.read_all()
    assert room.used_bytes == 208_000, "two are kept; of all others most lies in files"
    small = body_of(b"z" * 30_000, room=room)
    room.used_bytes += 100_000
    await small.read_all()
    assert small.outgoing() == b"z" * 30_000
    room.used_bytes -= 100_000
    for body in bodies:
        assert await all_of(body) == b"x" * 99_000 + b"y" * 1_000
        assert bytes(body.view()) == b"x" * 99_000 + b"y" * 1_000
        body.close()
    small.close()
    assert room.used_bytes == 0


@pytest.mark.parametrize("read", [0, 1, 2])
async def test_what_is_handed_on_is_given_back(read):
    room = SpoolRoom()
    body = body_of(b"a", b"b", b"c", room=room)
    for _ in range(read):
        await body.read_piece()
    assert room.used_bytes == read
    assert await all_of(body) == b"abc"
    assert room.used_bytes == 0
    body.close()
    assert room.used_bytes == 0
