"""How a request is framed, and where an answer's body ends. Bytes in, bytes out."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator

from contracts.upstream import Broken, OutgoingRequest, RawHeaders

_FRAMING = frozenset({b"content-length", b"transfer-encoding"})


def request_head(
    request: OutgoingRequest, *, prefix: bytes, host: bytes
) -> tuple[bytes, int | None]:
    """The head as it is sent, and the length of an iterated body where it is announced.

    The body's framing is ours: its own length where it is bytes, else what the headers
    announce, else chunks. ``host`` is sent where the headers name none.
    Raises Broken for a header that would end early.
    """
    lines = [b"%b %b%b HTTP/1.1" % (request.method.encode(), prefix, request.target)]
    announced: int | None = None
    has_host = False
    for name, value in request.headers:
        lower = name.lower()
        if lower not in _FRAMING:
            has_host = has_host or lower == b"host"
            lines.append(name + b": " + value)
        elif lower == b"content-length" and value.isdigit():
            announced = int(value)
    if not has_host:
        lines.insert(1, b"host: " + host)
    lines.extend(_body_header(request.body, announced))
    head = b"\r\n".join(lines) + b"\r\n\r\n"
    if not head.count(b"\n") == head.count(b"\r") == len(lines) + 1:
        raise Broken("a header of the request holds a line break")
    return head, announced


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


def _body_header(
    body: bytes | AsyncIterator[bytes] | None, announced: int | None
) -> tuple[bytes, ...]:
    if isinstance(body, bytes):
        return (b"content-length: %d" % len(body),)
    if body is None:
        return (b"content-length: 0",) if announced == 0 else ()
    if announced is None:
        return (b"transfer-encoding: chunked",)
    return (b"content-length: %d" % announced,)
