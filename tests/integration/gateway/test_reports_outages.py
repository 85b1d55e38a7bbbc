"""Field reports about a store that is full, frozen, read-only or away: traffic goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from dataclasses import replace

import aiohttp
import pytest
import redis

from adapters.codec import decode
from adapters.redis_client import connect
from adapters.redis_events import RedisEventLog
from api.gateway.telemetry import CAPACITY
from contracts.errors import Transient
from contracts.events import NodeLost, RequestCompleted, RequestReceived
from contracts.ids import NodeId
from tests.gateway_process import gateway_process

pytestmark = pytest.mark.integration

URL = "/v1/completions"


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def ask(session, url: str) -> int:
    async with session.post(url + URL, json={"model": "m"}) as answer:
        await answer.read()
        return int(answer.status)


async def ask_all(session, url: str, times: int) -> None:
    """So many requests, one after the other, all of which are served."""
    for _ in range(times):
        assert await ask(session, url) == 200


async def linked(session, url: str) -> str:
    async with session.get(url + "/headstart/readyz") as answer:
        assert answer.status == 200, "LocalAI answers, so requests are served"
        return str((await answer.json())["redis"])


async def until_linked(session, url: str, wanted: str) -> None:
    async with asyncio.timeout(30.0):
        while await linked(session, url) != wanted:  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)


def stored(url: str) -> tuple[int, int]:
    """Requests that the event log knows, and ends of them."""
    with redis.Redis.from_url(url, protocol=2) as client:
        events = [
            decode(data)
            for _, fields in client.xrange("headstart:events")
            for data in fields.values()
        ]
    kinds = Counter(type(event) for event in events)
    return kinds[RequestReceived], kinds[RequestCompleted]


async def until_stored(url: str, count: int) -> None:
    async with asyncio.timeout(30.0):
        while stored(url) != (count, count):  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.05)


@pytest.mark.case("P116")
async def test_a_store_that_comes_later_is_found(kit, tmp_path, start_redis, session):
    server = start_redis()
    server.kill()
    environment = {"HEADSTART_LOCALAI_URL": kit.localai.url, "REDIS_URL": server.url}
    async with gateway_process(tmp_path, environment) as gateway:
        assert await linked(session, gateway.url) == "away"
        await ask_all(session, gateway.url, 20)
        await gateway.says('"redis_away"')
        server.start()
        await until_linked(session, gateway.url, "up")
        await until_stored(server.url, 20)
        gateway.signal(signal.SIGTERM)
        assert await gateway.ends() == 0
    assert gateway.said.count('"redis_away"') == 1
    assert gateway.said.count('"redis_away_ended"') == 1


@pytest.mark.case("P116")
async def test_a_store_that_hangs_with_its_connections_open_holds_nobody_up(
    kit, tmp_path, start_redis, session
):
    """Half-open, as after a failure of the network: nothing is refused, nothing is answered."""
    server = start_redis()
    environment = {"HEADSTART_LOCALAI_URL": kit.localai.url, "REDIS_URL": server.url}
    async with gateway_process(tmp_path, environment) as gateway:
        await until_linked(session, gateway.url, "up")
        assert await ask(session, gateway.url) == 200
        await until_stored(server.url, 1)
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            served = 1
            async with asyncio.timeout(30.0):
                while await linked(session, gateway.url) != "away":
                    await ask_all(session, gateway.url, 5)
                    served += 5
                    await asyncio.sleep(0.2)
        finally:
            os.kill(server.process.pid, signal.SIGCONT)
        await until_linked(session, gateway.url, "up")
        async with asyncio.timeout(30.0):
            while stored(server.url)[0] < served:  # noqa: ASYNC110 - another process writes
                await asyncio.sleep(0.05)
        os.kill(server.process.pid, signal.SIGSTOP)
        try:
            gateway.signal(signal.SIGTERM)
            assert await gateway.ends() == 0, "it does not hang with it"
        finally:
            os.kill(server.process.pid, signal.SIGCONT)


@pytest.mark.case("P116")
async def test_a_store_that_became_a_replica_is_waited_for(kit, tmp_path, start_redis, session):
    server = start_redis()
    environment = {"HEADSTART_LOCALAI_URL": kit.localai.url, "REDIS_URL": server.url}
    async with gateway_process(tmp_path, environment) as gateway:
        await until_linked(session, gateway.url, "up")
        with redis.Redis.from_url(server.url, protocol=2) as client:
            client.execute_command("REPLICAOF", "127.0.0.1", "1")
            await ask_all(session, gateway.url, 10)
            await gateway.says('"telemetry_not_written"')
            assert "ReadOnly" in gateway.said
            await ask_all(session, gateway.url, 10)
            client.execute_command("REPLICAOF", "NO", "ONE")
        await gateway.says('"telemetry_not_written_ended"')
        await until_stored(server.url, 20)


@pytest.mark.case("P115")
async def test_a_full_store_costs_no_request_and_what_it_missed_is_written_later(
    kit, tmp_path, start_redis, session
):
    server = start_redis()
    environment = {"HEADSTART_LOCALAI_URL": kit.localai.url, "REDIS_URL": server.url}
    async with gateway_process(tmp_path, environment) as gateway:
        await until_linked(session, gateway.url, "up")
        with redis.Redis.from_url(server.url, protocol=2) as client:
            client.config_set("maxmemory-policy", "noeviction")
            client.config_set("maxmemory", "1")
            await ask_all(session, gateway.url, 50)
            await gateway.says('"telemetry_not_written"')
            assert "OutOfMemory" in gateway.said
            await ask_all(session, gateway.url, 50)
            assert stored(server.url) == (0, 0)
            client.config_set("maxmemory", "0")
        await gateway.says('"telemetry_not_written_ended"')
        await until_stored(server.url, 100)
    assert gateway.said.count('"telemetry_not_written"') == 1, "one line, however often"


@pytest.mark.case("P115")
async def test_what_the_buffer_cannot_hold_is_counted(kit, session):
    gateway = await kit.start()
    gateway.events.fault = Transient("append events: OutOfMemoryError: OOM command not allowed")
    telemetry = gateway.service.telemetry
    await ask(session, gateway.url)
    before = telemetry.pending
    event = telemetry._buffer[0]
    for number in range(CAPACITY):
        telemetry.emit(replace(event, event_id=f"more-{number}"))
    assert telemetry.pending == CAPACITY
    assert telemetry.dropped == before
    assert await ask(session, gateway.url) == 200
    async with session.get(gateway.url + "/headstart/metrics") as answer:
        text = await answer.text()
    (line,) = [one for one in text.splitlines() if 'outcome="dropped"' in one or "dropped" in one]
    assert float(line.rpartition(" ")[2]) > before
    telemetry._buffer.clear()
    gateway.events.fault = None


@pytest.mark.case("P115")
async def test_the_ways_a_store_refuses_are_all_taken_for_passing(start_redis):
    """MISCONF, OOM, READONLY and LOADING pass; they must not look like an error for good."""
    server = start_redis()
    client = connect(server.url)
    log = RedisEventLog(client)
    event = NodeLost(event_id="e", at_s=1.0, source="s", node=NodeId("n"), error="")
    with redis.Redis.from_url(server.url, protocol=2) as plain:
        for setting, value, back in [("maxmemory", "1", "0"), ("min-replicas-to-write", "1", "0")]:
            plain.config_set(setting, value)
            with pytest.raises(Transient):
                await log.append((event,))
            plain.config_set(setting, back)
        await log.append((event,))
    await client.aclose()


@pytest.mark.case("P087")
async def test_callers_that_close_at_the_last_byte_are_all_counted_and_nobody_waits(kit):
    gateway = await kit.start()
    writing = gateway.events.append

    async def slow(events):
        await gateway.clock.sleep(2.0)  # and this clock does not move meanwhile
        await writing(events)

    gateway.events.append = slow
    body = b'{"model":"m"}'
    request = b"POST /v1/completions HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )
    for _ in range(100):
        reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
        writer.write(request)
        answer = await reader.readuntil(b'{"ok": true}')
        assert answer.startswith(b"HTTP/1.1 200")
        writer.transport.abort()
    await kit.eventually(lambda: not gateway.service.in_flight())
    gateway.events.append = writing
    await gateway.advance(4.0)
    events = await gateway.told()
    assert sum(isinstance(one, RequestReceived) for one in events) == 100
    assert sum(isinstance(one, RequestCompleted) for one in events) == 100
