from __future__ import annotations

import asyncio
import contextlib

import pytest
from redis import exceptions as of_redis
from redis.asyncio import ConnectionPool
from redis.asyncio.client import Pipeline

from adapters.redis_client import block_ms, check_replies, mapped_errors, text
from contracts.errors import HeadstartError, Permanent, Transient


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (of_redis.ConnectionError("refused"), Transient),
        (of_redis.TimeoutError("too slow"), Transient),
        (of_redis.BusyLoadingError("LOADING"), Transient),
        (of_redis.ReadOnlyError("replica"), Transient),
        (of_redis.OutOfMemoryError("full"), Transient),
        (of_redis.MaxConnectionsError("too many"), Transient),
        (of_redis.ResponseError("LOADING the dataset"), Transient),
        (of_redis.ResponseError("MISCONF errors writing to the AOF file"), Transient),
        (of_redis.ResponseError("BUSY a script runs"), Transient),
        (of_redis.ResponseError("WRONGTYPE"), Permanent),
        (of_redis.ResponseError("BUSYGROUP it exists"), Permanent),
        (of_redis.NoPermissionError("NOPERM"), Permanent),
        (of_redis.AuthenticationError("wrong password"), Permanent),
        (of_redis.AuthorizationError("no"), Permanent),
        (of_redis.InvalidResponse("HTTP/1.1 400"), Permanent),
        (of_redis.DataError("of another type"), Permanent),
    ],
)
def test_every_error_of_the_server_is_one_of_two(error: Exception, kind: type[HeadstartError]):
    with pytest.raises(kind, match=r"^store a thing: ") as raised, mapped_errors("store a thing"):
        raise error
    assert raised.value.__cause__ is error


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("MISCONF Errors writing to the AOF file", Transient),
        ("LOADING the dataset", Transient),
        ("WRONGTYPE of another kind", Permanent),
    ],
)
def test_an_error_in_a_pipeline_is_the_servers_own_and_without_the_command(
    said: str, kind: type[HeadstartError]
):
    """As redis-py words it, by redis-py itself."""
    error = of_redis.ResponseError(said)
    Pipeline(ConnectionPool(), {}, transaction=True, shard_hint=None).annotate_exception(
        error, 1, ("HSET", "headstart:profiles", "chat-a\nof a pipeline")
    )
    with pytest.raises(kind) as raised, mapped_errors("store profiles"):
        raise error
    assert str(raised.value).startswith(f"store profiles: ResponseError: {said}")
    assert "HSET" not in str(raised.value)


def test_a_refusal_wrapped_as_a_broken_connection_is_still_a_refusal():
    greeting = of_redis.ConnectionError("greeting failed")
    greeting.__cause__ = of_redis.AuthenticationError("wrong password")
    with pytest.raises(Permanent), mapped_errors("read"):
        raise greeting


def test_other_errors_are_bugs_and_pass():
    with pytest.raises(KeyError), mapped_errors("read"):
        raise KeyError("x")
    with pytest.raises(RuntimeError, match="reused"), mapped_errors("read"):
        raise RuntimeError("cannot be reused")


def test_a_write_to_a_connection_that_was_reset_is_a_broken_connection():
    said = "unable to perform operation on <TCPTransport closed=True>; the handler is closed"
    with (
        pytest.raises(Transient, match="append: the connection was closed"),
        mapped_errors("append"),
    ):
        raise RuntimeError(said)


def test_the_first_error_among_replies_is_raised():
    check_replies([1, b"OK", None])
    with pytest.raises(of_redis.ResponseError, match="first"):
        check_replies([1, of_redis.ResponseError("first"), of_redis.ResponseError("second")])


def test_waiting_is_cut_to_five_seconds_and_never_for_ever():
    assert block_ms(0.0) is None
    assert block_ms(-1.0) is None
    assert block_ms(0.0001) == 1
    assert block_ms(1.5) == 1500
    assert block_ms(600.0) == 5000


def test_names_come_as_text():
    assert text(b"m\xc3\xb6del") == "mödel"
    assert text("x") == "x"


async def swallowing(error: Exception | None, *, begun: asyncio.Event) -> None:
    """As a client does that loses the cancellation and goes on."""
    with mapped_errors("send"):
        begun.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        if error is not None:
            raise error


@pytest.mark.parametrize(
    "error", [None, of_redis.ConnectionError("closed"), RuntimeError("the handler is closed")]
)
async def test_a_cancellation_that_the_client_swallowed_is_raised_again(error: Exception | None):
    begun = asyncio.Event()
    task = asyncio.create_task(swallowing(error, begun=begun))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_swallowed_time_limit_is_still_a_time_limit():
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await swallowing(None, begun=asyncio.Event())


async def test_what_was_cancelled_before_does_not_count():
    async def leaving() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            with mapped_errors("release"):
                await asyncio.sleep(0)
            said.append("released")
        return "ended"

    said: list[str] = []
    task = asyncio.create_task(leaving())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert said == ["released"]
