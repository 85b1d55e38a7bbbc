"""How a request is framed, and where an answer's body ends. Bytes in, bytes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from functools import lru_cache
from typing import NamedTuple

from contracts.upstream import Broken, OutgoingRequest, RawHeaders

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})
_KEPT_HEADS = 256
_KEPT_HEADERS = 40


class _Lines(NamedTuple):
    """Headers as they are written, each with a line break before it."""

    written: bytes
    announced: int | None
    has_host: bool


def request_head(
    request: OutgoingRequest, *, prefix: bytes, host: bytes
) -> tuple[bytes, int | None]:
    """The head as it is sent, and the length of an iterated body where it is announced.

    The body's framing is ours: its own length where it is bytes, else what the headers
    announce, else chunks. ``host`` is sent where the headers name none.
    Raises Broken for a header that would end early.
    """
    target = b"%b %b%b HTTP/1.1" % (request.method.encode(), prefix, request.target)
    if len(request.headers) <= _KEPT_HEADERS:
        lines = _header_lines(request.headers)
    else:
        lines = _header_lines.__wrapped__(request.headers)
    head = [target, b"" if lines.has_host else b"\r\nhost: " + host, lines.written]
    framing = _body_header(request.body, lines.announced)
    head.append(b"\r\n" + framing + b"\r\n\r\n" if framing else b"\r\n\r\n")
    if b"\n" in target or b"\r" in target:
        raise Broken("the target of the request holds a line break")
    return b"".join(head), lines.announced


async def framed(
    body: AsyncIterator[bytes], length: int | None
) -> AsyncGenerator[tuple[bytes, ...]]:
    """An iterated body as it is sent: in chunks, or as it is where ``length`` is announced.

    Raises Broken when it is not as long as it was said to be: what follows would be taken
    for another request.
    """
    if length is None:
        async for piece in body:
            if piece:
                yield b"%x\r\n" % len(piece), piece, b"\r\n"
        yield (b"0\r\n\r\n",)
        return
    left = length
    async for piece in body:
        left -= len(piece)
        if left < 0:
            raise Broken("the request's body is longer than it was said to be")
        yield (piece,)
    if left > 0:
        raise Broken("the request's body is shorter than it was said to be")


def ends_with_connection(headers: RawHeaders) -> bool:
    """Whether a body under these headers has no other end than its connection's."""
    framing = {name.lower(): value for name, value in headers}
    if b"transfer-encoding" in framing:
        return not framing[b"transfer-encoding"].lower().endswith(b"chunked")
    return b"content-length" not in framing


@lru_cache(maxsize=_KEPT_HEADS)
def _header_lines(headers: RawHeaders) -> _Lines:
    """Most requests bring the headers of one that was before them. Raises Broken."""
    written: list[bytes] = []
    announced: int | None = None
    has_host = False
    for name, value in headers:
        lower = name.lower()
        if lower not in _FRAMING:
            has_host = has_host or lower == b"host"
            written.append(b"\r\n" + name + b": " + value)
        elif lower == b"content-length" and value.isdigit():
            announced = int(value)
    whole = b"".join(written)
    if not whole.count(b"\n") == whole.count(b"\r") == len(written):
        raise Broken("a header of the request holds a line break")
    return _Lines(whole, announced, has_host)


def _body_header(body: bytes | AsyncIterator[bytes] | None, announced: int | None) -> bytes:
    if isinstance(body, bytes):
        return b"content-length: %d" % len(body)
    if body is None:
        return b"content-length: 0" if announced == 0 else b""
    if announced is None:
        return b"transfer-encoding: chunked"
    return b"content-length: %d" % announced
