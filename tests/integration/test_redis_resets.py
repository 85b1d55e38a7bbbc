"""Connections to Redis are reset at any moment: whoever uses them hears of an outage, no more."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import redis
import uvloop

from adapters.redis_client import connect, mapped_errors
from adapters.redis_events import RedisEventLog
from adapters.redis_format import connect_blocking_settled, connect_settled
from adapters.redis_mailbox import to_controller, to_gateways
from adapters.redis_stores import RedisSnapshotStore
from contracts.errors import HeadstartError, Transient
from contracts.events import NodeLost
from contracts.ids import NodeId
from contracts.messages import SettingsChanged
from tests.chaos.relays import Relay

pytestmark = pytest.mark.integration

RESETS = 150


def test_whatever_moment_a_connection_is_reset_at_only_outages_come_of_it(redis_url: str):
    """As the gateway runs it: on uvloop, which says other things of a closed connection."""
    uvloop.run(_resets(redis_url.removeprefix("unix://").partition("?")[0]))


async def _resets(socket: str) -> None:
    relay = Relay("redis", path=socket)
    await relay.start()
    client = connect(f"redis://127.0.0.1:{relay.port}/0")
    log = RedisEventLog(client)
    event = NodeLost(event_id="1", at_s=1.0, source="test", node=NodeId("n"), error="away")
    uses: list[Callable[[], Awaitable[object]]] = [
        lambda: log.append((event,)),
        lambda: log.read_after("$", count=10, block_s=0.01),
        lambda: to_controller(client).send(SettingsChanged(at_s=1.0)),
        lambda: to_gateways(client).receive("$", block_s=0.01),
        lambda: RedisSnapshotStore(client).world(),
    ]
    outages = 0

    async def use(often: Callable[[], Awaitable[object]]) -> None:
        nonlocal outages
        while True:
            try:
                await often()
            except HeadstartError:
                outages += 1

    tasks = [asyncio.create_task(use(often)) for often in uses for _ in range(3)]
    for turn in range(RESETS):
        await asyncio.sleep(0.001 * (turn % 12))
        relay.reset()
    done, running = await asyncio.wait(tasks, timeout=0.0)
    for task in running:
        task.cancel()
    await asyncio.wait(tasks)
    await client.aclose()
    await relay.stop()
    assert [task.exception() for task in done] == []
    assert relay.broken > RESETS


@pytest.mark.parametrize("blocking", [False, True])
async def test_an_outage_longer_than_the_look_at_a_connections_health_is_an_outage(
    redis_url: str, blocking: bool
):
    """Who is greeted by a server that hangs up is not to look after its health meanwhile."""
    relay = Relay("redis", path=redis_url.removeprefix("unix://").partition("?")[0])
    await relay.start()
    url = f"redis://127.0.0.1:{relay.port}/0"
    if blocking:
        with pytest.raises(redis.ConnectionError):
            await asyncio.to_thread(_blocking_outage, url, relay, asyncio.get_running_loop())
    else:
        client = connect_settled(url)
        await client.ping()
        connection = await client.connection_pool.get_connection()
        connection.next_health_check = 0
        await client.connection_pool.release(connection)
        relay.refuse()
        with pytest.raises(Transient), mapped_errors("ping"):
            await client.ping()
        await client.aclose()
    await relay.stop()


def _blocking_outage(url: str, relay: Relay, loop: asyncio.AbstractEventLoop) -> None:
    with connect_blocking_settled(url) as client:
        client.ping()
        connection = client.connection_pool.get_connection()
        connection.next_health_check = 0
        client.connection_pool.release(connection)
        asyncio.run_coroutine_threadsafe(_refuse(relay), loop).result()
        client.ping()


async def _refuse(relay: Relay) -> None:
    relay.refuse()
