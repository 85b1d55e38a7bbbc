"""The live feed over HTTP, and how the process behaves with streams open."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from api.control import event_stream
from api.control.feed import EventFeed
from contracts.ids import ModelId
from contracts.world import Residency
from tests.browser.lively import Kind
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

HOT, COLD = "qwen3-8b", "llama-70b"
KINDS = (Kind(HOT, 20.0, 6.6, 7.0), Kind(COLD, 0.5, 41.0, 38.0))


@pytest.fixture
def control() -> Iterator[RunningControl]:
    control = RunningControl(kinds=KINDS, minutes=1).start()
    yield control
    control.stop()


class Events:
    """Reads a stream's events one after another."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.response = response
        self.last_id = ""

    async def next(self, *kinds: str) -> Any:
        """The data of the next event of one of these kinds."""
        async with asyncio.timeout(15):
            fields: dict[str, str] = {}
            async for raw in self.response.content:
                line = raw.decode().rstrip("\n")
                if line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                    continue
                self.last_id = fields.get("id", self.last_id)
                if fields.get("event") in kinds:
                    return json.loads(fields["data"])
                fields = {}
        raise AssertionError("the stream ended")


async def test_the_stream_opens_with_everything_and_goes_on_with_changes(
    control: RunningControl, session: aiohttp.ClientSession
):
    async with session.get(f"{control.url}/v1/events") as response:
        assert response.content_type == "text/event-stream"
        assert response.headers["X-Accel-Buffering"] == "no"
        assert response.headers["Cache-Control"] == "no-store"
        events = Events(response)
        hello = await events.next("hello")
        assert hello["scale"] == 1.0
        assert (await events.next("summary"))["mode"] == "active"
        assert (await events.next("nodes"))[0]["id"] == "localai"
        assert len(await events.next("queues")) == 3
        models = await events.next("models")
        assert models["full"]
        assert [one["id"] for one in models["changed"]] == [COLD, HOT]
        forecasts = await events.next("forecasts")
        assert {one["model"] for one in forecasts["changed"]} == {HOT, COLD}

        control.lively.set(ModelId(COLD), residency=Residency.LOADING)
        control.do(control.lively.snapshots.put_world(control.lively.world))
        residency = ""
        while residency != "loading":
            changed = await events.next("models")
            assert not changed["full"]
            residency = {one["id"]: one["residency"] for one in changed["changed"]}.get(COLD, "")

        control.do(control.lively.decide(control.lively.clock.now_s()))
        assert (await events.next("decision"))["sentence"]

        control.do(control.lively.step())
        assert (await events.next("summary"))["now_s"] >= hello["now_s"]


async def test_decisions_that_were_missed_come_after_reconnecting(
    control: RunningControl, session: aiohttp.ClientSession
):
    async with session.get(f"{control.url}/v1/events") as response:
        events = Events(response)
        await events.next("forecasts")
        control.do(control.lively.decide(control.lively.clock.now_s()))
        seen = await events.next("decision")
        last_id = events.last_id
    control.do(control.lively.decide(control.lively.clock.now_s()))
    async with session.get(
        f"{control.url}/v1/events", headers={"Last-Event-ID": last_id}
    ) as response:
        events = Events(response)
        await events.next("forecasts")
        missed = await events.next("decision")
        assert missed["cursor"] != seen["cursor"]


async def test_too_many_streams_are_refused_and_ended_ones_make_room(
    control: RunningControl, session: aiohttp.ClientSession
):
    control.room.feed = control.room.live._feed = EventFeed(boot="few", max_listeners=1)
    async with session.get(f"{control.url}/v1/events") as first:
        await Events(first).next("hello")
        async with session.get(f"{control.url}/v1/events") as second:
            assert second.status == 503
            assert (await second.json())["error"]["code"] == "too_many_listeners"
            assert second.headers["Retry-After"] == "5"
    for _ in range(200):
        if control.room.feed.listeners == 0:
            break
        await asyncio.sleep(0.02)
    async with session.get(f"{control.url}/v1/events") as third:
        assert third.status == 200


async def test_a_client_that_reads_nothing_loses_its_place(
    control: RunningControl, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(event_stream, "SEND_LIMIT_S", 0.5)
    reader, writer = await asyncio.open_connection("127.0.0.1", control.port, limit=1024)
    writer.write(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readline()
    assert control.room.feed.listeners == 1
    lump = "x" * 200_000

    async def say_much() -> None:
        for _ in range(50):
            control.room.feed.publish("summary", lump)
            await asyncio.sleep(0.01)

    control.do(say_much())
    async with asyncio.timeout(15):
        while control.room.feed.listeners:  # noqa: ASYNC110 - it lives on another loop
            await asyncio.sleep(0.05)
    writer.close()


async def start_process(environ: dict[str, str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "api.control",
        cwd=Path(__file__).parents[2],
        env={"PATH": os.environ["PATH"], "HOME": "/nonexistent"} | environ,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_the_process_ends_with_0_within_seconds_although_streams_are_open(
    redis_url: str, session: aiohttp.ClientSession, unused_tcp_port: int, number: signal.Signals
):
    process = await start_process(
        {
            "REDIS_URL": redis_url,
            "HEADSTART_CONTROL_PORT": str(unused_tcp_port),
            "HEADSTART_CONTROL_HOST": "127.0.0.1",
        }
    )
    url = f"http://127.0.0.1:{unused_tcp_port}"
    try:
        await until_it_answers(session, f"{url}/healthz")
        async with session.get(f"{url}/v1/events") as stream:
            await Events(stream).next("hello")
            async with session.put(f"{url}/v1/slas/llama", json={"target_s": 2}) as written:
                assert written.status == 200
            process.send_signal(number)
            async with asyncio.timeout(5):
                _, errors = await process.communicate()
        assert process.returncode == 0
        assert b"Traceback" not in errors
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_target_outlives_the_process(
    redis_url: str, session: aiohttp.ClientSession, unused_tcp_port: int
):
    environ = {"REDIS_URL": redis_url, "HEADSTART_CONTROL_PORT": str(unused_tcp_port)}
    url = f"http://127.0.0.1:{unused_tcp_port}"
    for attempt in range(2):
        process = await start_process(environ)
        try:
            await until_it_answers(session, f"{url}/healthz")
            if attempt == 0:
                async with session.put(f"{url}/v1/slas/a/b", json={"target_s": 2.5}) as answer:
                    assert answer.status == 200
            async with session.get(f"{url}/v1/slas/a%2Fb") as answer:
                assert (await answer.json())["target_s"] == 2.5
        finally:
            process.terminate()
            await process.communicate()


async def test_a_busy_port_and_a_bad_setting_are_one_line_each(redis_url: str):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        redis = {"REDIS_URL": redis_url}
        busy = {"HEADSTART_CONTROL_PORT": port, "HEADSTART_CONTROL_HOST": "127.0.0.1"}
        no_redis: dict[str, str] = {}
        cases = (redis | busy, redis | {"HEADSTART_CONTROL_PORT": "no-port"}, no_redis)
        for environ in cases:
            process = await start_process(environ)
            _, errors = await process.communicate()
            lines = errors.decode().strip().splitlines()
            assert process.returncode == 2, errors
            assert len(lines) == 1, errors
            assert lines[0].startswith("headstart control: ")


async def until_it_answers(session: aiohttp.ClientSession, url: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                async with session.get(url) as response:
                    assert response.status == 200
                    return
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.1)
