"""What a caller is told at the edge, before its request is anybody's. Pure."""

from __future__ import annotations

from http import HTTPStatus

import msgspec

from api.gateway.heads import HeadRefused


def head_too_slow() -> HeadRefused:
    """The head did not come in time."""
    return HeadRefused(
        status=408, code="head_timeout", message="The request's head did not come in time."
    )


def body_too_slow() -> HeadRefused:
    """Of the body nothing, or next to nothing, came for too long."""
    return HeadRefused(
        status=408, code="body_timeout", message="The request's body did not come in time."
    )


def no_place() -> HeadRefused:
    """There are as many connections as there may be, and all have a request."""
    return HeadRefused(
        status=503,
        code="connections",
        message="The gateway has as many connections as it takes. Try again.",
    )


def too_many_pipelined() -> HeadRefused:
    """More requests than may wait for those before them; never told, only counted."""
    return HeadRefused(
        status=429, code="pipeline", message="Too many requests wait on one connection."
    )


def refusal_bytes(why: HeadRefused) -> bytes:
    """The whole answer; the connection ends with it."""
    body = msgspec.json.encode(
        {
            "error": {
                "message": why.message,
                "type": "invalid_request_error" if why.status < 500 else "no_backend",
                "param": None,
                "code": why.code,
            }
        }
    )
    lines = [
        f"HTTP/1.1 {why.status} {HTTPStatus(why.status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        "connection: close",
    ]
    if why.status == HTTPStatus.SERVICE_UNAVAILABLE:
        lines.append("retry-after: 1")
    if why.status == HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append("allow: GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS")
    return "\r\n".join(lines).encode("ascii") + b"\r\n\r\n" + body
