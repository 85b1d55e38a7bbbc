"""Synchronous clients of the Redis-compatible server, for RQ and for what is done once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import redis
import redis.connection
from redis.backoff import ConstantBackoff, NoBackoff
from redis.cluster import ClusterNode
from redis.exceptions import RedisClusterException
from redis.retry import Retry as ConnectionRetry
from redis.sentinel import Sentinel

from adapters.redis_address import ClusterAddress, cluster_address, sentinel_address
from adapters.redis_client import check_arguments, understood

BlockingGreeting = Callable[[redis.connection.AbstractConnection], None]


def connect_blocking(
    url: str, *, attempts: int = 0, greet: BlockingGreeting | None = None
) -> redis.Redis:
    """A synchronous client, as RQ wants it.

    ``attempts`` half-second retries bridge an outage: a worker needs a minute of them, or a job
    that ends meanwhile runs twice; a caller that somebody waits for needs none. ``greet`` is what
    each new connection begins with, in place of redis-py's own greeting. A cluster takes no
    greeting and no jobs, and is connected to at once.

    Raises
    ------
    Invalid
        The url cannot be understood. Its password is not repeated.
    redis.exceptions.ConnectionError
        It names a cluster of which no node answers.
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
        cluster = cluster_address(url)
        if cluster is not None:
            options.pop("redis_connect_func", None)
            # It answers all that is used of the other one, and is another class.
            return cast(redis.Redis, _Cluster(cluster, options))
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


class _Cluster(redis.RedisCluster):
    """A cluster whose errors are those of a server."""

    def __init__(self, address: ClusterAddress, options: Mapping[str, Any]) -> None:
        nodes = [ClusterNode(*place) for place in address.nodes]  # type: ignore[no-untyped-call] # redis-py's
        with _plain_errors():
            super().__init__(startup_nodes=nodes, **options, **address.data)

    def execute_command(self, *args: Any, **kwargs: Any) -> Any:
        with _plain_errors():
            return super().execute_command(*args, **kwargs)  # type: ignore[no-untyped-call] # redis-py's


@contextmanager
def _plain_errors() -> Iterator[None]:
    try:
        yield
    except RedisClusterException as error:
        raise redis.exceptions.ConnectionError(str(error)) from error


class _Watched(redis.Redis):
    """A client whose address sentinels know; their connections end with its own."""

    def close(self) -> None:
        super().close()
        for sentinel in self.connection_pool.sentinel_manager.sentinels:  # type: ignore[attr-defined] # its own pool
            sentinel.close()
