"""Synchronous clients of the Redis-compatible server, for RQ and for what is done once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import redis
import redis.connection
from redis.backoff import ConstantBackoff, NoBackoff
from redis.retry import Retry as ConnectionRetry
from redis.sentinel import Sentinel

from adapters.redis_address import sentinel_address
from adapters.redis_client import check_arguments, understood

BlockingGreeting = Callable[[redis.connection.AbstractConnection], None]


def connect_blocking(
    url: str, *, attempts: int = 0, greet: BlockingGreeting | None = None
) -> redis.Redis:
    """A synchronous client, as RQ wants it.

    ``attempts`` half-second retries bridge an outage: a worker needs a minute of them, or a job
    that ends meanwhile runs twice; a caller that somebody waits for needs none. ``greet`` is what
    each new connection begins with, in place of redis-py's own greeting.
    """
    options: dict[str, Any] = {
        "protocol": 2,  # RQ reads the reply shapes of RESP2
        "retry": ConnectionRetry(ConstantBackoff(0.5), attempts),
        "retry_on_error": [redis.exceptions.ConnectionError, redis.exceptions.TimeoutError],
        "socket_connect_timeout": 2,
        "socket_timeout": 5,
        "health_check_interval": 15,
    }
    if greet is not None:
        options["redis_connect_func"] = greet
    with understood(url):
        watched = sentinel_address(url)
        if watched is None:
            client = redis.Redis.from_url(url, **options)
            check_arguments(client)
            return client
        asked: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": 2,
            # There are others to ask, and the whole is tried again anyway.
            "retry": ConnectionRetry(NoBackoff(), 0),
            **watched.asking,
        }
        sentinel = Sentinel(  # type: ignore[no-untyped-call] # redis-py's
            watched.sentinels, sentinel_kwargs=asked, **watched.data, **options
        )
        master: redis.Redis = sentinel.master_for(watched.service, _Watched)  # type: ignore[no-untyped-call]
        return master


class _Watched(redis.Redis):
    """A client whose address sentinels know; their connections end with its own."""

    def close(self) -> None:
        super().close()
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined] # its own pool
            sentinel.close()
