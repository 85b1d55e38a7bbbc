"""One way to connect to the Redis-compatible server, and one way to read its errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis.asyncio
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff
from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    ConnectionError,  # noqa: A004 - the library's own name
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004 - the library's own name
)

from contracts.errors import HeadstartError, Invalid, Permanent, Transient

KEY_PREFIX = "headstart:"
"""All our keys start with it, so that a shared server can be looked through and cleaned."""

MAX_BLOCK_S = 5.0
"""The longest that one blocking read waits on the server; longer wishes are cut to it."""

_SOCKET_TIMEOUT_S = MAX_BLOCK_S + 3.0
_CONNECT_TIMEOUT_S = 2.0
_MAX_CONNECTIONS = 64

_PASSING_ERRORS = (
    "LOADING", "MISCONF", "READONLY", "OOM", "BUSY ", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN",
    "NOREPLICAS", "UNBLOCKED",
)  # fmt: skip
"""How the server's answers begin that are about its state, not about what was asked."""


def connect(url: str) -> redis.asyncio.Redis:
    """A client for ``url`` (``redis://``, ``rediss://`` or ``unix://``); it connects on first use.

    Broken connections are retried three times within about a second, timeouts are not: a
    server that hangs is told to the caller at once. RESP2 is asked for explicitly, since the
    shapes of replies depend on it.

    Raises
    ------
    Invalid
        The url cannot be understood. Its password is not repeated.
    """
    try:
        return redis.asyncio.Redis.from_url(
            url,
            protocol=2,
            decode_responses=False,
            socket_timeout=_SOCKET_TIMEOUT_S,
            socket_connect_timeout=_CONNECT_TIMEOUT_S,
            health_check_interval=15,
            max_connections=_MAX_CONNECTIONS,
            client_name="headstart",
            retry=Retry(
                ExponentialWithJitterBackoff(base=0.05, cap=0.5),
                3,
                supported_errors=(ConnectionError,),
            ),
        )
    except ValueError as error:
        raise Invalid(
            f"redis url {redact(url)!r}: not understood; write redis://host:6379/0, "
            "rediss://user:password@host:6380/0 or unix:///path/to/redis.sock"
        ) from error


def redact(url: str) -> str:
    """``url`` without its password, for people to read."""
    scheme, separator, rest = url.partition("://")
    credentials, at, place = rest.rpartition("@")
    if at:
        user = credentials.partition(":")[0]
        rest = f"{user}:***@{place}"
    return (scheme + separator + rest).partition("?")[0]


@contextmanager
def mapped_errors(what: str) -> Iterator[None]:
    """Turn every error of the server or the way to it into Transient or Permanent.

    ``what`` was being done, such as "append events"; it begins the message.
    """
    try:
        yield
    except RedisError as error:
        raise _mapped(error, what) from error


def check_replies(replies: Sequence[Any]) -> None:
    """Raise the first error among a pipeline's replies.

    Pipelines are run with ``raise_on_error=False``: redis-py would put the whole command,
    with all that it carries, into the message.
    """
    for reply in replies:
        if isinstance(reply, RedisError):
            raise reply


def text(value: bytes | str) -> str:
    """A name in a reply; replies are bytes, since clients made here decode nothing."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def block_ms(block_s: float) -> int | None:
    """The BLOCK argument for waiting ``block_s``; None: do not wait. Never 0, which is for ever."""
    return max(1, round(min(block_s, MAX_BLOCK_S) * 1000)) if block_s > 0.0 else None


def _mapped(error: RedisError, what: str) -> HeadstartError:
    message = f"{what}: {type(error).__name__}: {str(error)[:200]}"
    if isinstance(error, (AuthenticationError, AuthorizationError)):
        return Permanent(message)
    if isinstance(error, (ConnectionError, TimeoutError, ReadOnlyError, OutOfMemoryError)):
        return Transient(message)
    if isinstance(error, ResponseError) and str(error).startswith(_PASSING_ERRORS):
        return Transient(message)
    return Permanent(message)
