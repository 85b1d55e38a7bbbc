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
    _, stuck = await asyncio.wait(tasks, timeout=20.0)
    assert not stuck, "a cancellation was lost"
    await client.aclose()
    await relay.stop()
    assert [task.exception() for task in done] == []
    assert relay.broken > RESETS
    assert outages > 0


class HangsUp(asyncio.Protocol):
    """Takes the first word of a greeting, and says no more."""

    greetings = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        HangsUp.greetings += 1
        self.transport.close()


@pytest.mark.parametrize("blocking", [False, True])
async def test_a_server_that_hangs_up_is_greeted_a_few_times_and_no_more(blocking: bool):
    """A greeting that looks after the connection's health would greet again, and so on."""
    HangsUp.greetings = 0
    server = await asyncio.get_running_loop().create_server(HangsUp, "127.0.0.1", 0)
    url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    if blocking:
        with pytest.raises(redis.ConnectionError):
            await asyncio.to_thread(_ping, url)
    else:
        client = connect_settled(url)
        with pytest.raises(Transient), mapped_errors("ping"):
            await client.ping()
        await client.aclose()
    server.close()
    assert 1 <= HangsUp.greetings <= 16


def _ping(url: str) -> None:
    with connect_blocking_settled(url) as client:
        client.ping()
