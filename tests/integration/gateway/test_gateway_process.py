"""``python -m api.gateway``: what it prints, how it ends, and Redis that comes and goes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import redis

from adapters.codec import decode
from contracts.events import RequestCompleted, RequestReceived

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]
PATIENCE_S = 30.0


class Process:
    def __init__(self, process: asyncio.subprocess.Process, port: int) -> None:
        self.process = process
        self.port = port
        self.url = f"http://127.0.0.1:{port}"

    async def output(self) -> tuple[int, str]:
        _, err = await asyncio.wait_for(self.process.communicate(), PATIENCE_S)
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()

    async def is_up(self, session: aiohttp.ClientSession) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    async with session.get(self.url + "/headstart/healthz") as answer:
                        assert answer.status == 200
                        return
                except aiohttp.ClientConnectionError:
                    await asyncio.sleep(0.05)


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start(kit, tmp_path) -> AsyncIterator[Start]:
    processes: list[Process] = []

    async def run(**environment: str) -> Process:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        plain = {
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "HEADSTART_LOCALAI_URL": kit.localai.url,
            "HEADSTART_GATEWAY_PORT": str(port),
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "api.gateway",
            cwd=ROOT,
            env=plain | environment,
            stderr=asyncio.subprocess.PIPE,
        )
        processes.append(Process(process, int((plain | environment)["HEADSTART_GATEWAY_PORT"])))
        return processes[-1]

    yield run
    for running in processes:
        if running.process.returncode is None:
            running.process.kill()
            await running.process.communicate()


@pytest.fixture
async def session():
    async with aiohttp.ClientSession() as session:
        yield session


async def test_a_busy_port_is_one_clear_line(start):
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = await start(HEADSTART_GATEWAY_PORT=str(port))
        code, printed = await process.output()
    assert code == 2
    (line,) = printed.splitlines()
    assert line == (
        f"headstart gateway: port {port} on 0.0.0.0 is in use; "
        "set HEADSTART_GATEWAY_PORT to another one, or stop what listens there"
    )


@pytest.mark.parametrize(
    ("environment", "named"),
    [
        ({"HEADSTART_GATEWAY_PORT": "70000"}, "HEADSTART_GATEWAY_PORT"),
        ({"HEADSTART_LOCALAI_URL": "localai:8081"}, "localai:8081"),
        ({"HEADSTART_TIME_SCALE": "30"}, "HEADSTART_TIME_SCALE"),
    ],
)
async def test_a_configuration_that_cannot_work_is_one_clear_line(start, environment, named):
    process = await start(**environment)
    code, printed = await process.output()
    assert code == 2
    assert named in printed
    assert "Traceback" not in printed


async def test_sigterm_lets_running_answers_end(kit, start, session):
    process = await start()
    await process.is_up(session)
    go_on = asyncio.Event()

    async def script(seen, writer):
        writer.write(kit.event_stream_head + kit.chunk(b"data: 1\n\n"))
        await go_on.wait()
        writer.write(kit.chunk(b"data: 2\n\n") + b"0\r\n\r\n")

    kit.localai.script = script
    answer = await session.post(process.url + "/v1/completions", json={"model": "m"})
    assert await answer.content.readany() == b"data: 1\n\n"
    process.process.send_signal(signal.SIGTERM)
    await asyncio.sleep(0.5)
    with pytest.raises(aiohttp.ClientConnectionError):
        await session.get(process.url + "/headstart/healthz")
    go_on.set()
    assert await answer.read() == b"data: 2\n\n"
    code, printed = await process.output()
    assert code == 0
    assert "Traceback" not in printed
    assert '"gateway_stopping"' in printed


async def test_idle_it_ends_within_seconds(start, session):
    process = await start()
    await process.is_up(session)
    process.process.send_signal(signal.SIGINT)
    async with asyncio.timeout(5.0):
        code, _ = await process.output()
    assert code == 0


async def test_redis_is_killed_and_comes_back(kit, start, start_redis, session):
    server = start_redis()
    process = await start(REDIS_URL=server.url)
    await process.is_up(session)

    async def chat() -> int:
        url = process.url + "/v1/completions"
        async with session.post(url, json={"model": "m"}) as answer:
            return int(answer.status)

    async def is_linked() -> bool:
        async with session.get(process.url + "/headstart/readyz") as answer:
            return bool((await answer.json())["redis"] == "up")

    assert await chat() == 200
    server.kill()
    for _ in range(20):
        assert await chat() == 200
        await asyncio.sleep(0.1)
    server.start()

    def told() -> list[object]:
        with redis.Redis.from_url(server.url, protocol=2) as client:
            return [
                decode(data)
                for _, fields in client.xrange("headstart:events")
                for data in fields.values()
            ]

    async with asyncio.timeout(PATIENCE_S):
        while len(told()) < 20:  # noqa: ASYNC110 - another process writes
            await asyncio.sleep(0.1)
        while not await is_linked():  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)
    process.process.send_signal(signal.SIGTERM)
    code, printed = await process.output()
    assert code == 0
    for event in ("redis_away", "beat_not_sent", "telemetry_not_written"):
        assert printed.count(f'"{event}"') == 1, "one line when it begins"
        assert printed.count(f'"{event}_ended"') == 1, "and one when it ends"
    events = told()
    received = [one.request_id for one in events if isinstance(one, RequestReceived)]
    completed = [one.request_id for one in events if isinstance(one, RequestCompleted)]
    assert len(received) >= 20, "what came while it was away was kept"
    assert sorted(received) == sorted(completed)


async def test_a_large_upload_takes_no_memory(start, kit, session):
    """Generated, streamed and thrown away: neither the gateway nor this test holds it."""
    taken = 0

    async def swallow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        await reader.readuntil(b"\r\n\r\n")
        while taken < size:
            taken += len(await reader.read(2**20))
        writer.write(kit.reply(b"{}"))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    form_start = (
        b'--b\r\nContent-Disposition: form-data; name="model"\r\n\r\nm\r\n'
        b'--b\r\nContent-Disposition: form-data; name="file"; filename="f"\r\n\r\n'
    )
    piece, pieces = bytes(2**20), 128
    size = len(form_start) + pieces * len(piece) + len(b"\r\n--b--\r\n")

    async def form():
        yield form_start
        for _ in range(pieces):
            yield piece
        yield b"\r\n--b--\r\n"

    await kit.localai.stop()
    server = await asyncio.start_server(swallow, "127.0.0.1", kit.localai.port, limit=2**20)
    process = await start()
    await process.is_up(session)
    before_kib = peak_kib(process)
    headers = {"Content-Type": "multipart/form-data; boundary=b", "Content-Length": str(size)}
    url = process.url + "/v1/audio/transcriptions"
    async with session.post(url, data=form(), headers=headers) as answer:
        assert answer.status == 200
    assert taken == size
    assert peak_kib(process) - before_kib < 32 * 1024
    server.close()


async def test_idle_connections_take_little_memory(start, session):
    process = await start(HEADSTART_GATEWAY__MAX_CONNECTIONS="300")
    await process.is_up(session)
    before_kib = peak_kib(process)
    idle = [await asyncio.open_connection("127.0.0.1", process.port) for _ in range(400)]
    async with session.get(process.url + "/headstart/metrics") as answer:
        text = await answer.text()
    given_way = text.split('refusals_total{type="gave_way"} ')[1].splitlines()[0]
    # Those that have waited longest gave way to the others, and to the one that asked.
    assert float(given_way) >= 100
    assert peak_kib(process) - before_kib < 12 * 1024
    for _, writer in idle:
        writer.close()


def peak_kib(process: Process) -> int:
    """The most memory that the process ever held."""
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0])
