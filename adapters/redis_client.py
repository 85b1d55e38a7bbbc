"""One way to connect to the Redis-compatible server, and one way to read its errors."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import redis
import redis.asyncio
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,  # noqa: A004 - the library's own name
    OutOfMemoryError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TimeoutError,  # noqa: A004 - the library's own name
    TryAgainError,
)

from adapters.redis_address import cluster_address, sentinel_address
from adapters.redis_cluster import ClusterClient, ClusterLayout
from contracts.errors import HeadstartError, Invalid, Permanent, Transient
from contracts.redis_keys import tagged

T = TypeVar("T")

Greeting = Callable[[redis.asyncio.Connection], Awaitable[None]]

MAX_BLOCK_S = 5.0
"""The longest that one blocking read waits on the server; longer wishes are cut to it."""

_SOCKET_TIMEOUT_S = MAX_BLOCK_S + 3.0
_CONNECT_TIMEOUT_S = 2.0
_MAX_CONNECTIONS = 64

_REFUSALS = (AuthenticationError, AuthorizationError, BusyLoadingError)

_PASSING = (
    ConnectionError, TimeoutError, ReadOnlyError, OutOfMemoryError, AskError, TryAgainError,
    ClusterDownError,
)  # fmt: skip

_IN_PIPELINE = re.compile(r"^Command # \d+ .* of pipeline caused error: \(?['\"]?", re.DOTALL)
_HANDLE_CLOSED = "the handler is closed"

_PASSING_ERRORS = (
    "LOADING", "MISCONF", "READONLY", "OOM", "BUSY ", "TRYAGAIN", "CLUSTERDOWN", "MASTERDOWN",
    "NOREPLICAS", "UNBLOCKED",
)  # fmt: skip
"""How the server's answers begin that are about its state, not about what was asked."""


def connect(url: str, *, greet: Greeting | None = None) -> redis.asyncio.Redis:
    """A client for ``url`` (``adapters.redis_address``); it connects on first use.

    ``greet`` is what each new connection begins with, in place of redis-py's own greeting.

    Broken connections are retried three times within about a second, timeouts are not: a
    server that hangs is told to the caller at once. RESP2 is asked for explicitly, since the
    shapes of replies depend on it.

    Raises
    ------
    Invalid
        The url cannot be understood. Its password is not repeated.
    """
    options: dict[str, Any] = {
        "protocol": 2,
        "decode_responses": False,
        "socket_timeout": _SOCKET_TIMEOUT_S,
        "socket_connect_timeout": _CONNECT_TIMEOUT_S,
        "health_check_interval": 15,
        "max_connections": _MAX_CONNECTIONS,
        "client_name": client_name(os.getpid()),
        "retry": _BrokenConnectionRetry(
            ExponentialWithJitterBackoff(base=0.05, cap=0.5), 3, supported_errors=(ConnectionError,)
        ),
    }
    if greet is not None:
        options["redis_connect_func"] = greet
    with understood(url):
        cluster = cluster_address(url)
        if cluster is not None:
            return ClusterClient(
                cluster.nodes,
                {**options, **cluster.data, "redis_connect_func": None},
                is_retried=lambda error: _refusal(error) is None,
            )
        watched = sentinel_address(url)
        if watched is None:
            client = redis.asyncio.Redis.from_url(url, **options)
            check_arguments(client)
            return client
        asked: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": _CONNECT_TIMEOUT_S,
            # There are others to ask, and the whole is tried again anyway.
            "retry": Retry(NoBackoff(), 0),
            **watched.asking,
        }
        sentinel = Sentinel(  # type: ignore[no-untyped-call] # redis-py's
            watched.sentinels, sentinel_kwargs=asked, **watched.data, **options
        )
        master: redis.asyncio.Redis = sentinel.master_for(watched.service, _Watched)
        return master


class _Watched(redis.asyncio.Redis):
    """A client whose address sentinels know; their connections end with its own."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001 - redis-py's
        await super().aclose(close_connection_pool)
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined] # its own pool
            await sentinel.aclose()


def check_arguments(client: redis.Redis | redis.asyncio.Redis) -> None:
    """Make a connection without opening it: an unknown word in an address is found now.

    Raises
    ------
    ValueError
    """
    pool = client.connection_pool
    try:
        pool.connection_class(**pool.connection_kwargs)
    except TypeError as error:
        raise ValueError(str(error).rpartition(") ")[2]) from error


@contextmanager
def understood(url: str) -> Iterator[None]:
    """What is wrong with an address, said without its password."""
    try:
        yield
    except ValueError as error:
        raise Invalid(
            f"redis url {redact(url)!r}: {error}; write redis://host:6379/0, "
            "rediss://user:password@host:6380/0, unix:///path/to/redis.sock, "
            "redis+sentinel://host1:26379,host2:26379/service/0 or "
            "redis+cluster://host1:6379,host2:6379"
        ) from error


def key_for(client: redis.asyncio.Redis | redis.Redis, key: str) -> str:
    """A key of ``contracts.redis_keys`` as it is called where ``client`` is connected to."""
    in_cluster = isinstance(client, ClusterClient | redis.RedisCluster)
    return tagged(key) if in_cluster else key


async def each_server(client: redis.asyncio.Redis) -> dict[str, redis.asyncio.Redis]:
    """A client of each server that keeps keys, by what it is called: "" where there is one."""
    return await client.servers() if isinstance(client, ClusterClient) else {"": client}


async def cluster_layout(client: redis.asyncio.Redis) -> ClusterLayout | None:
    """Which nodes a cluster has; None where it is one server."""
    return await client.layout() if isinstance(client, ClusterClient) else None


def client_name(pid: int) -> str:
    """The name of a process's connections in the server's CLIENT LIST."""
    return f"headstart-{pid}"


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

    A cancellation that got lost on the way is raised again: redis-py sends through
    ``asyncio.wait_for``, which before Python 3.12 swallows one that comes when the command has
    just been written. The caller would go on for ever, and its process not end.
    """
    cancellations = _cancellations()
    try:
        yield
    except RedisError as error:
        if _cancellations() > cancellations:
            raise asyncio.CancelledError from error
        raise _mapped(error, what) from error
    except RuntimeError as error:
        # What uvloop says of a connection that was reset between two of redis-py's steps.
        if _HANDLE_CLOSED not in str(error):
            raise
        if _cancellations() > cancellations:
            raise asyncio.CancelledError from error
        raise Transient(f"{what}: the connection was closed") from error
    if _cancellations() > cancellations:
        raise asyncio.CancelledError


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


def exact_text(value: bytes | str) -> str:
    """A name that is sent back as it came. Raises UnicodeDecodeError where it could not be."""
    return value.decode() if isinstance(value, bytes) else value


def block_ms(block_s: float) -> int | None:
    """The BLOCK argument for waiting ``block_s``; None: do not wait. Never 0, which is for ever."""
    return max(1, round(min(block_s, MAX_BLOCK_S) * 1000)) if block_s > 0.0 else None


class _BrokenConnectionRetry(Retry):
    """Retries broken connections, and none that the server refused.

    A refusal at the greeting would otherwise be retried on three levels at once, 64 times.
    """

    async def call_with_retry(
        self,
        do: Callable[[], Awaitable[T]],
        fail: Callable[[Exception], Any] | Callable[[Exception, int], Any],
        is_retryable: Callable[[Exception], bool] | None = None,
        with_failure_count: bool = False,  # noqa: FBT001, FBT002 - the base class's signature
    ) -> T:
        def is_broken(error: Exception) -> bool:
            return _refusal(error) is None and (is_retryable is None or is_retryable(error))

        return await super().call_with_retry(do, fail, is_broken, with_failure_count)


def _cancellations() -> int:
    """How often the running task was asked to end; 0 outside of one."""
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return 0
    return 0 if task is None else task.cancelling()


def _mapped(error: RedisError, what: str) -> HeadstartError:
    # In a pipeline redis-py puts the command before it, with all that it carries.
    said = _IN_PIPELINE.sub("", str(error))
    message = f"{what}: {type(error).__name__}: {said[:200]}"
    if isinstance(_refusal(error), (AuthenticationError, AuthorizationError)):
        return Permanent(message)
    if isinstance(error, _PASSING):
        return Transient(message)
    if isinstance(error, ResponseError) and said.startswith(_PASSING_ERRORS):
        return Transient(message)
    return Permanent(message)


def _refusal(error: BaseException) -> BaseException | None:
    """What the server refused at the greeting; redis-py wraps it as a broken connection."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, _REFUSALS):
        found = found.__cause__
    return found
