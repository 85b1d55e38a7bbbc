"""Real worker processes on a real server: jobs are done once, whatever is killed meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from aiohttp import web

from adapters.redis_blocking import connect_blocking
from adapters.rq_queue import ENTRY, RqJobQueue
from contracts.errors import Transient
from workers.jobs import JobRunner
from workers.queues import QUEUES
from workers.worker import QueueWorker

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


class Gateway:
    """Stands for the gateway: answers when it is let, and remembers who asked and who left."""

    def __init__(self) -> None:
        self.url = ""
        self.started: list[tuple[str, str]] = []
        self.left: list[str] = []
        self.ended: list[str] = []
        self.open = asyncio.Event()
        self.open.set()
        self.refuse: list[tuple[int, dict[str, str]]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        job_id = request.headers["X-Request-ID"]
        self.started.append((job_id, request.headers["X-Headstart-Class"]))
        body = await request.json()
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.left.append(job_id)
            raise
        self.ended.append(job_id)
        if self.refuse:
            status, headers = self.refuse.pop(0)
            error = {"message": "come back", "type": "queue_full"}
            return web.json_response({"error": error}, status=status, headers=headers)
        return web.json_response({"model": body["model"], "run": len(self.ended)})


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    gateway = Gateway()
    app = web.Application()
    app.router.add_post("/{path:.*}", gateway.handle)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    gateway.url = f"http://127.0.0.1:{port}"
    yield gateway
    await runner.cleanup()


class Workers:
    """Worker processes of one test; none outlives it."""

    def __init__(self, redis_url: str, log: Path) -> None:
        self.redis_url = redis_url
        self.log = log
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(
        self, queue: str, gateway_url: str = "http://127.0.0.1:9", **environ: str
    ) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "workers", "--queue", queue, "--gateway-url", gateway_url]
        with self.log.open("ab") as out:
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                env={**os.environ, "HEADSTART_REDIS_URL": self.redis_url, **environ},
                stdout=out,
                stderr=out,
            )
        self.processes.append(process)
        return process

    def lines(self, event: str) -> list[dict[str, object]]:
        found = [json.loads(line) for line in self.log.read_text().splitlines() if line[:1] == "{"]
        return [line for line in found if line["event"] == event]

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(6)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def workers(redis_url: str, tmp_path: Path) -> Iterator[Workers]:
    workers = Workers(redis_url, tmp_path / "workers.log")
    yield workers
    workers.end()


@contextlib.contextmanager
def job_queue(url: str) -> Iterator[RqJobQueue]:
    with connect_blocking(url) as client:
        yield RqJobQueue(client, QUEUES)


@pytest.fixture
def jobs(redis_url: str) -> Iterator[RqJobQueue]:
    with job_queue(redis_url) as jobs:
        yield jobs


def request(model: str = "llama") -> dict[str, object]:
    return {"path": "/v1/chat/completions", "model": model, "body": {"messages": []}}


async def until(is_so: Callable[[], object], within_s: float = 15.0) -> None:
    ends_at = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < ends_at, "it did not come to that"
        await asyncio.sleep(0.05)


def state(jobs: RqJobQueue, job_id: str) -> object:
    try:
        status = jobs.status(job_id)
    except Transient:
        return None  # a server that was started again still reads its file
    return None if status is None else status["state"]


def answer(jobs: RqJobQueue, job_id: str) -> dict[str, object]:
    status = jobs.status(job_id)
    assert status is not None
    assert isinstance(status["result"], dict), status
    body = json.loads(status["result"]["body"])
    assert isinstance(body, dict)
    return body


async def test_a_job_runs_through_the_gateway_and_its_answer_is_kept(
    gateway: Gateway, workers: Workers, jobs: RqJobQueue
):
    workers.start("background", gateway.url)
    assert jobs.enqueue("background", "inference", request(), "j1")
    await until(lambda: state(jobs, "j1") == "finished")
    assert gateway.started == [("j1", "background")]
    status = jobs.status("j1")
    assert status is not None
    result = status["result"]
    assert isinstance(result, dict)
    assert (result["status"], result["content_type"]) == (200, "application/json; charset=utf-8")
    assert answer(jobs, "j1") == {"model": "llama", "run": 1}
    assert status["error"] is None
    assert jobs.counts()["background"]["finished"] == 1
    assert len(workers.lines("job_finished")) == 1


async def test_enqueued_by_many_at_once_it_runs_once(
    gateway: Gateway, workers: Workers, redis_url: str, jobs: RqJobQueue
):
    def enqueue(_: int) -> bool:
        with job_queue(redis_url) as mine:
            return mine.enqueue("background", "inference", request(), "j1")

    with ThreadPoolExecutor(8) as threads:
        new = list(threads.map(enqueue, range(8)))
    assert new.count(True) == 1
    workers.start("background", gateway.url)
    jobs.enqueue("background", "inference", request(), "last")
    await until(lambda: state(jobs, "last") == "finished")
    assert not jobs.enqueue("background", "inference", request(), "j1")
    assert [job_id for job_id, _ in gateway.started] == ["j1", "last"]


async def test_refused_for_now_it_comes_back_when_it_was_told(
    gateway: Gateway, workers: Workers, jobs: RqJobQueue
):
    gateway.refuse = [(429, {"Retry-After": "1"}), (503, {"Retry-After": "1"})]
    workers.start("background", gateway.url)
    jobs.enqueue("background", "inference", request(), "j1")
    await until(lambda: state(jobs, "j1") == "scheduled")
    status = jobs.status("j1")
    assert status is not None
    assert status["error"] == "429: queue_full: come back"
    await until(lambda: state(jobs, "j1") == "finished", within_s=40.0)
    assert gateway.ended == ["j1"] * 3
    status = jobs.status("j1")
    assert status is not None
    assert status["attempts"] == {"failures": 0, "refusals": 2, "holds": 0}


async def test_refused_for_good_it_fails_with_the_reason(
    gateway: Gateway, workers: Workers, jobs: RqJobQueue
):
    gateway.refuse = [(404, {})]
    workers.start("background", gateway.url)
    jobs.enqueue("background", "inference", request("nobody"), "j1")
    await until(lambda: state(jobs, "j1") == "failed")
    status = jobs.status("j1")
    assert status is not None
    assert status["error"] == "404: queue_full: come back"
    assert gateway.ended == ["j1"]


def _spoil(client: redis.Redis, job_id: str, **fields: bytes | str) -> None:
    for field, value in fields.items():
        client.hset(f"rq:job:{job_id}", field, value)


async def test_bad_jobs_fail_with_a_reason_and_block_nobody(
    gateway: Gateway, workers: Workers, jobs: RqJobQueue, redis_url: str, tmp_path: Path
):
    for name in ("path", "kind", "pickle", "code", "record"):
        kind = "delete-everything" if name == "kind" else "inference"
        payload = {"path": "/models/apply", "body": {}} if name == "path" else request()
        jobs.enqueue("background", kind, payload, name)
    jobs.enqueue("background", "inference", request(), "good")
    trace = tmp_path / "pwned"
    call = json.dumps(["os.system", None, [f"touch {trace}"], {}]).encode()
    with connect_blocking(redis_url) as client:
        _spoil(client, "pickle", data=b"\x80\x05cos\nsystem\n.")
        _spoil(client, "code", data=zlib.compress(call), success_callback_name="os.abort")
        _spoil(client, "record", status="no-such-state", created_at="yesterday")
    workers.start("background", gateway.url)
    await until(lambda: state(jobs, "good") == "finished", within_s=20.0)
    errors = {}
    for name in ("path", "kind", "pickle", "code", "record"):
        status = jobs.status(name)
        assert status is not None, name
        assert status["state"] == "failed", name
        errors[name] = str(status["error"])
    assert errors["path"].startswith("path '/models/apply': must be one of")
    assert errors["kind"].startswith('kind "delete-everything": must be one of b')
    assert "DeserializationError" in errors["pickle"]
    assert f"only {ENTRY} is run" in errors["code"]
    assert errors["record"] == "its record in Redis could not be read"
    assert not trace.exists()
    assert [job_id for job_id, _ in gateway.started] == ["good"]
    assert [line["job_id"] for line in workers.lines("job_unreadable")] == ["record"]


async def test_told_to_stop_it_puts_its_job_back_and_ends_in_time(
    gateway: Gateway, workers: Workers, jobs: RqJobQueue
):
    gateway.open.clear()
    worker = workers.start("background", gateway.url)
    jobs.enqueue("background", "inference", request(), "j1")
    await until(lambda: gateway.started)
    asked_at = time.monotonic()
    worker.send_signal(signal.SIGTERM)
    await until(lambda: worker.poll() is not None, within_s=5.0)
    assert time.monotonic() - asked_at < 5.0
    assert worker.returncode == 0
    assert gateway.left == ["j1"]
    assert state(jobs, "j1") == "queued"
    gateway.open.set()
    workers.start("background", gateway.url)
    await until(lambda: state(jobs, "j1") == "finished")
    assert gateway.ended == ["j1"]


def test_a_stop_that_came_before_the_worker_was_there_is_not_lost(redis_url: str):
    with connect_blocking(redis_url) as client:
        worker = QueueWorker(
            QUEUES["background"],
            client,
            JobRunner(contextlib.nullcontext),  # type: ignore[arg-type] # no job is run
            is_told_to_stop=lambda: True,
        )
        worker.serve()
        assert worker.stopping


@pytest.mark.timeout(120)
@pytest.mark.case("P118")
async def test_killed_in_the_middle_its_job_is_done_by_the_next(
    gateway: Gateway, workers: Workers, jobs: RqJobQueue
):
    gateway.open.clear()
    worker = workers.start("background", gateway.url)
    jobs.enqueue("background", "inference", request(), "j1")
    await until(lambda: gateway.started)
    worker.kill()
    # The job's process dies with the worker, so that the work upstream ends as well.
    await until(lambda: gateway.left == ["j1"], within_s=5.0)
    gateway.open.set()
    workers.start("background", gateway.url)
    await until(lambda: state(jobs, "j1") == "finished", within_s=60.0)
    assert gateway.ended == ["j1"]
    assert answer(jobs, "j1")["run"] == 1
    assert jobs.counts()["background"] == {
        "queued": 0,
        "started": 0,
        "finished": 1,
        "failed": 0,
        "scheduled": 0,
    }


@pytest.mark.case("P120")
async def test_popped_by_a_worker_that_died_at_once_it_is_found(
    gateway: Gateway, workers: Workers, jobs: RqJobQueue, redis_url: str
):
    jobs.enqueue("background", "inference", request(), "j1")
    with connect_blocking(redis_url) as client:
        popped = "rq:queue:background:intermediate"
        client.lmove("rq:queue:background", popped)
        client.set(f"{popped}:first_seen:j1", time.time() - 60.0)
        workers.start("background", gateway.url)
        await until(lambda: state(jobs, "j1") == "finished")
        assert client.lrange(popped, 0, -1) == []
    assert gateway.ended == ["j1"]
    assert [line["job_id"] for line in workers.lines("job_recovered")] == ["j1"]


@pytest.mark.parametrize("moment", ["while it runs", "when it ends"])
async def test_redis_killed_and_started_again_the_job_is_done_once(
    gateway: Gateway, start_redis, tmp_path: Path, moment: str
):
    server = start_redis(appendonly="yes", appendfsync="everysec")
    workers = Workers(server.url, tmp_path / "workers.log")
    try:
        gateway.open.clear()
        workers.start("background", gateway.url)
        with job_queue(server.url) as jobs:
            jobs.enqueue("background", "inference", request(), "j1")
            await until(lambda: gateway.started)
            await asyncio.sleep(1.2)  # what is older than a second is on the disk
            server.kill()
            if moment == "when it ends":
                gateway.open.set()
            await asyncio.sleep(4.0)
            server.start()
            gateway.open.set()
            await until(lambda: state(jobs, "j1") == "finished")
            assert gateway.ended == ["j1"]
            assert gateway.left == []
            jobs.enqueue("background", "inference", request(), "j2")
            await until(lambda: state(jobs, "j2") == "finished")
        assert len(workers.lines("worker_started")) == 1
    finally:
        workers.end()


async def test_without_redis_it_waits_says_so_once_and_stops_when_told(
    start_redis, gateway: Gateway, tmp_path: Path
):
    server = start_redis()
    server.kill()
    workers = Workers(server.url, tmp_path / "workers.log")
    try:
        early = workers.start("background", gateway.url)
        await until(lambda: workers.lines("redis_unreachable"))
        await asyncio.sleep(2.5)
        assert len(workers.lines("redis_unreachable")) == 1
        server.start()
        await until(lambda: workers.lines("worker_started"))
        server.kill()
        await asyncio.sleep(1.0)
        early.send_signal(signal.SIGTERM)
        await until(lambda: early.poll() is not None)
        assert early.returncode == 0
    finally:
        workers.end()


class HalfRedis:
    """Greets and answers PING, and drops whoever asks for more: it dies as a worker begins."""

    def __init__(self) -> None:
        self.url = ""
        self.dropped = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            while header := await reader.readline():
                words = []
                for _ in range(int(header[1:])):
                    size = int((await reader.readline())[1:])
                    words.append((await reader.readexactly(size + 2))[:size].upper())
                reply = {b"PING": b"+PONG", b"CLIENT": b"+OK", b"CONFIG": b"*0"}.get(words[0])
                if reply is None or words[1:] == [b"INFO"]:
                    self.dropped += 1
                    break
                writer.write(reply + b"\r\n")
        writer.close()


async def test_told_to_stop_while_it_cannot_begin_a_worker_leaves_in_time(tmp_path: Path):
    half = HalfRedis()
    server = await asyncio.start_server(half.serve, "127.0.0.1", 0)
    workers = Workers("", tmp_path / "workers.log")
    workers.redis_url = f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}/0"
    try:
        worker = workers.start("background")
        await until(lambda: half.dropped >= 2)
        worker.send_signal(signal.SIGTERM)
        await until(lambda: worker.poll() is not None, within_s=15.0)
        assert worker.returncode == 0
    finally:
        server.close()
        await asyncio.to_thread(workers.end)


@pytest.mark.case("P114")
async def test_on_a_server_that_evicts_it_warns_and_jobs_that_vanished_block_nobody(
    start_redis, gateway: Gateway, tmp_path: Path
):
    server = start_redis(**{"maxmemory": "100mb", "maxmemory-policy": "allkeys-lru"})
    workers = Workers(server.url, tmp_path / "workers.log")
    try:
        with connect_blocking(server.url) as client:
            jobs = RqJobQueue(client, QUEUES)
            for name in ("gone-1", "gone-2", "there"):
                jobs.enqueue("background", "inference", request(), name)
            client.delete("rq:job:gone-1", "rq:job:gone-2")
            workers.start("background", gateway.url)
            await until(lambda: state(jobs, "there") == "finished")
            await until(lambda: len(workers.lines("job_lost")) == 2, within_s=20.0)
            for name in ("gone-1", "gone-2"):
                told = jobs.status(name)
                assert told is not None
                assert told["state"] == "failed"
                assert "vanished" in str(told["error"])
        assert [line["policy"] for line in workers.lines("redis_evicts")] == ["allkeys-lru"]
        assert {line["job_id"] for line in workers.lines("job_lost")} == {"gone-1", "gone-2"}
    finally:
        workers.end()


async def test_retention_really_trims(workers: Workers, jobs: RqJobQueue, redis_url: str):
    now_ms, day_ms = int(time.time() * 1000), 86_400_000
    with connect_blocking(redis_url) as client:
        for number in range(50):
            client.xadd(
                "headstart:events", {"r": b"old"}, id=f"{now_ms - 20 * day_ms}-{number + 1}"
            )
        for number in range(5):
            old_ms = now_ms - 30 * day_ms + number
            client.xadd("headstart:decisions", {"r": b"old"}, id=f"{old_ms}-1")
            client.zadd("headstart:decisions:index", {f"d{number}": old_ms})
        client.xadd("headstart:events", {"r": b"new"}, id=f"{now_ms - day_ms}-1")
        client.xadd("headstart:decisions", {"r": b"new"}, id=f"{now_ms - day_ms}-1")
        client.zadd("headstart:decisions:index", {"d-new": now_ms - day_ms})
        workers.start("maintenance")
        jobs.enqueue("maintenance", "retention", {}, "now")
        await until(lambda: state(jobs, "now") == "finished")
        status = jobs.status("now")
        assert status is not None
        assert status["result"] == {
            "trimmed": {"events": 50, "decisions": 5},
            "forecasts_removed": [],
            "batches_removed": 0,
            "files_removed": 0,
        }
        assert client.xlen("headstart:events") == 1
        assert client.xlen("headstart:decisions") == 1
        assert client.zrange("headstart:decisions:index", 0, -1) == [b"d-new"]


async def test_chores_are_queued_once_by_whoever_looks(workers: Workers, jobs: RqJobQueue):
    # 03:20 UTC on a day in March: three minutes after retention is due.
    anchor = f"{time.time()}:{1773112800 + 200 * 60}"
    dev = {
        "HEADSTART_ENV": "dev",
        "HEADSTART_TIME_ANCHOR": anchor,
        "HEADSTART_WORKERS__MAINTENANCE__BACKTEST": "off",
        "HEADSTART_WORKERS__MAINTENANCE__PROFILES": "off",
    }
    for _ in range(2):
        workers.start("maintenance", **dev)
    await until(lambda: jobs.counts()["maintenance"]["finished"])
    await until(lambda: len(workers.lines("worker_started")) == 2)
    assert jobs.counts()["maintenance"] == {
        "queued": 0,
        "started": 0,
        "finished": 1,
        "failed": 0,
        "scheduled": 0,
    }
    queued = workers.lines("chore_queued")
    assert [line["job_id"] for line in queued] == ["retention-20260310T031700Z"]


def _children(pid: int) -> dict[str, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and f"\nPPid:\t{pid}\n" in (entry / "status").read_text():
                words = (entry / "cmdline").read_bytes().decode().split("\0")
                if "--queue" in words:
                    found[words[words.index("--queue") + 1]] = int(entry.name)
    return found


async def test_all_starts_one_process_for_each_queue_and_keeps_them(
    gateway: Gateway, workers: Workers, jobs: RqJobQueue
):
    parent = workers.start("all", gateway.url)
    await until(lambda: len(workers.lines("worker_started")) == 4, within_s=30.0)
    children = _children(parent.pid)
    assert set(children) == set(QUEUES)
    os.kill(children["batch"], signal.SIGKILL)
    await until(lambda: _children(parent.pid).get("batch") not in (None, children["batch"]))
    jobs.enqueue("batch", "inference", request(), "j1")
    await until(lambda: state(jobs, "j1") == "finished", within_s=30.0)
    assert gateway.started == [("j1", "batch")]
    parent.send_signal(signal.SIGTERM)
    await until(lambda: parent.poll() is not None, within_s=6.0)
    assert parent.returncode == 0
    assert _children(parent.pid) == {}


@pytest.mark.parametrize(
    ("arguments", "environ", "message"),
    [
        (["--queue", "background"], {}, r"^workers: .*Redis.*\n$"),
        (["--queue", "background"], {"HEADSTART_TIME_SCALE": "fast"}, r"^workers: .*\n$"),
        (["--queue", "express"], {}, r"invalid choice: 'express'"),
    ],
)
def test_a_bad_start_is_one_clear_line_and_code_2(
    arguments: list[str], environ: dict[str, str], message: str
):
    done = subprocess.run(
        [sys.executable, "-m", "workers", *arguments],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert re.search(message, done.stderr), done.stderr
    assert "Traceback" not in done.stderr
