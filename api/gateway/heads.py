"""Whether the head of a request means one thing only, before anybody acts on it. Pure.

The parser has refused most of what is malformed (docs/http-edge.md lists it). What is
judged here is well-formed, but read differently by different servers: a message whose end
or addressee two of them could disagree about is refused rather than passed on.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WATCHED = frozenset({b"content-length", b"expect", b"host", b"transfer-encoding"})
"""Headers that ``judge_head`` looks at."""

_HOST = re.compile(rb"[A-Za-z0-9._~!$&'()*+,;=%:\[\]-]*")
_ABSOLUTE = re.compile(rb"(?i)https?://([^/?#]*)([^#]*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadLimits:
    """Bounds of a request's head. Beyond them it is refused (431, or 414 for the target)."""

    max_bytes: int = 131_072
    max_headers: int = 500
    max_target_bytes: int = 32_768


@dataclass(slots=True, kw_only=True)
class Target:
    """Where a request goes.

    Attributes
    ----------
    path, query : bytes
        With their escapes.
    authority : bytes or None
        The host that an absolute target names, which then counts instead of ``Host``.
    """

    path: bytes
    query: bytes
    authority: bytes | None = None


# Not frozen: exceptions get their traceback assigned.
@dataclass(kw_only=True, eq=False)
class HeadRefused(Exception):
    """A request that is not served, and what its caller is told."""

    status: int
    code: str
    message: str

    def __str__(self) -> str:
        return f"{self.status} {self.code}: {self.message}"


def judge_head(method: str, version: str, watched: Mapping[bytes, Sequence[bytes]]) -> None:
    """Raise HeadRefused where a head leaves open how, or to whom, it is to be read.

    ``watched`` are the values of the WATCHED headers, as they came.
    """
    if version not in ("1.1", "1.0"):
        raise HeadRefused(
            status=505, code="http_version", message="The gateway takes HTTP/1.1 and HTTP/1.0."
        )
    if method in ("CONNECT", "TRACE"):
        # Neither has a place in front of a server: one opens tunnels, the other echoes keys.
        raise HeadRefused(
            status=405, code="method_not_allowed", message=f"{method} is not served here."
        )
    _judge_host(version, watched.get(b"host", ()))
    if (coding := watched.get(b"transfer-encoding")) is not None:
        _judge_coding(version, coding, has_length=b"content-length" in watched)
    for expectation in watched.get(b"expect", ()):
        if expectation.strip().lower() != b"100-continue":
            raise HeadRefused(
                status=417,
                code="expectation_failed",
                message="The only expectation that is met is 100-continue.",
            )


def judge_websocket(method: str, version: str, watched: Mapping[bytes, Sequence[bytes]]) -> None:
    """Raise HeadRefused for a handshake that is no plain GET.

    With a body its bytes could pass for frames on one side and for a request on the other.
    """
    lengths = watched.get(b"content-length", ())
    has_body = b"transfer-encoding" in watched or any(one.strip() != b"0" for one in lengths)
    if method != "GET" or version != "1.1" or has_body:
        raise HeadRefused(
            status=400,
            code="bad_handshake",
            message="A websocket begins with a GET of HTTP/1.1 without a body.",
        )


def split_target(target: bytes) -> Target:
    """Take a target apart: a path, or an address with one. Raises HeadRefused (400)."""
    if b"#" not in target and target.isascii():
        if target.startswith(b"/"):
            path, _, query = target.partition(b"?")
            return Target(path=path, query=query)
        if (found := _ABSOLUTE.fullmatch(target)) is not None:
            authority, rest = found.groups()
            if authority and _HOST.fullmatch(authority):
                path, _, query = rest.partition(b"?")
                return Target(path=path or b"/", query=query, authority=authority)
    raise HeadRefused(
        status=400, code="bad_target", message="The request's target is no path of this server."
    )


def head_too_large() -> HeadRefused:
    """More bytes or headers than HeadLimits allows."""
    return HeadRefused(
        status=431, code="head_too_large", message="The request's head is too large."
    )


def target_too_long() -> HeadRefused:
    """A longer target than HeadLimits allows."""
    return HeadRefused(
        status=414, code="target_too_long", message="The request's address is too long."
    )


def malformed() -> HeadRefused:
    """The parser could not read it, or would not."""
    return HeadRefused(status=400, code="bad_request", message="This is no valid HTTP request.")


def _judge_host(version: str, hosts: Sequence[bytes]) -> None:
    if len(hosts) > 1 or (not hosts and version == "1.1"):
        raise HeadRefused(
            status=400, code="bad_host", message="A request has exactly one Host header."
        )
    if hosts and not _HOST.fullmatch(hosts[0].strip()):
        raise HeadRefused(status=400, code="bad_host", message="The Host header names no host.")


def _judge_coding(version: str, codings: Sequence[bytes], *, has_length: bool) -> None:
    if version == "1.0" or has_length:
        raise HeadRefused(
            status=400,
            code="bad_framing",
            message="The body's length is given twice, or in a way that HTTP/1.0 has not.",
        )
    if [coding.strip().lower() for coding in codings] != [b"chunked"]:
        raise HeadRefused(
            status=501,
            code="transfer_encoding",
            message="The only transfer encoding that is taken is chunked.",
        )
