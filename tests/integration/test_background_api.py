"""Requests that may wait, over HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import pytest

from contracts.config import CallerKey, ControlConfig, GatewayConfig
from contracts.errors import Transient
from contracts.events import PriorityClass
from contracts.jobs import CANCELLED, JobState
from simulator.memory_jobs import MemoryJobQueue
from tests.control_server import RunningControl

pytestmark = pytest.mark.integration

KEY, BOUND, LOW = "key-" + "k" * 40, "bound-" + "b" * 40, "low-" + "l" * 40
CHAT = {"model": "chat-a", "messages": []}


@pytest.fixture(scope="module")
def control() -> Iterator[RunningControl]:
    callers = tuple(
        CallerKey(
            name=name,
            digest=hashlib.sha256(key.encode()).digest(),
            models=models,
            priority=priority,
        )
        for name, key, models, priority in (
            ("any", KEY, (), None),
            ("bound", BOUND, ("chat-*",), None),
            ("low", LOW, (), PriorityClass.BACKGROUND),
        )
    )
    control = RunningControl(
        config=ControlConfig(admin_key="admin-key"),
        gateway=GatewayConfig(callers=callers),
        seeded=False,
    ).start()
    yield control
    control.stop()


@pytest.fixture
async def session(control: RunningControl) -> AsyncIterator[aiohttp.ClientSession]:
    headers = {"Authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession(control.url, headers=headers) as session:
        yield session


def _jobs(control: RunningControl) -> MemoryJobQueue:
    jobs = control.room.ports.jobs
    assert isinstance(jobs, MemoryJobQueue)
    return jobs


async def _take(session: aiohttp.ClientSession, body: Any = CHAT, **headers: str) -> dict[str, Any]:
    async with session.post(
        "/v1/background/v1/chat/completions", json=body, headers=headers
    ) as answer:
        assert answer.status == 202, await answer.text()
        taken: dict[str, Any] = await answer.json()
        assert answer.headers["Location"] == taken["status_url"]
        return taken


async def test_a_request_is_taken_at_once_and_stands_in_the_queue(
    control: RunningControl, session: aiohttp.ClientSession
):
    job = await _take(session)
    assert (job["status"], job["object"]) == ("queued", "background.job")
    known = _jobs(control).status(job["id"])
    assert known is not None
    assert (known["queue"], known["kind"]) == ("background", "inference")
    assert known["payload"] == {"path": "/v1/chat/completions", "body": CHAT}
    async with session.get(job["result_url"]) as answer:
        assert (answer.status, answer.headers["Retry-After"]) == (409, "1")


async def test_the_answer_comes_as_the_model_gave_it(
    control: RunningControl, session: aiohttp.ClientSession
):
    job = await _take(session)
    _jobs(control).move(job["id"], JobState.FINISHED)
    results = control.room.ports.results
    assert results is not None
    kept = {"status": 200, "content_type": "audio/x", "encoding": "base64", "body": "AAEC"}
    assert control.do(results.commit(job["id"], kept))
    async with session.get(job["status_url"]) as answer:
        assert (await answer.json())["status"] == "completed"
    async with session.get(job["result_url"]) as answer:
        assert (answer.status, answer.content_type) == (200, "audio/x")
        assert await answer.read() == b"\x00\x01\x02"


async def test_a_job_that_failed_says_why(control: RunningControl, session: aiohttp.ClientSession):
    job = await _take(session)
    _jobs(control).move(job["id"], JobState.FAILED, error="404: no such model")
    async with session.get(job["status_url"]) as answer:
        told = await answer.json()
    assert (told["status"], told["error"]) == ("failed", "404: no such model")
    async with session.get(job["result_url"]) as answer:
        assert answer.status == 410
        assert (await answer.json())["error"]["code"] == "job_failed"


async def test_one_that_waits_is_taken_out_and_one_that_runs_is_broken_off(
    control: RunningControl, session: aiohttp.ClientSession
):
    waiting, running = await _take(session), await _take(session)
    _jobs(control).move(running["id"], JobState.STARTED)
    async with session.post(waiting["status_url"] + "/cancel") as answer:
        assert (await answer.json())["status"] == "cancelled"
    async with session.post(running["status_url"] + "/cancel") as answer:
        assert (await answer.json())["status"] == "in_progress"
    results = control.room.ports.results
    assert results is not None
    assert control.do(results.is_cancelled(running["id"]))
    _jobs(control).move(running["id"], JobState.FAILED, error=CANCELLED)
    async with session.post(running["status_url"] + "/cancel") as answer:
        assert (await answer.json())["status"] == "cancelled", "again is no error"


@pytest.mark.parametrize(
    ("path", "body", "status", "said"),
    [
        ("/models/delete/x", b"{}", 404, "is no path"),
        ("/v1/chat/completions", b"{", 400, "no JSON"),
        ("/v1/chat/completions", b"[]", 400, "JSON object"),
        ("/v1/chat/completions", b"{}", 400, "model"),
        ("/v1/chat/completions", b'{"model":"m","stream":true}', 400, "stream"),
    ],
)
async def test_what_can_never_be_served_is_refused_at_once(
    session: aiohttp.ClientSession, path: str, body: bytes, status: int, said: str
):
    async with session.post("/v1/background" + path, data=body) as answer:
        assert answer.status == status
        assert said in (await answer.json())["error"]["message"]


async def test_a_key_for_some_models_takes_no_other(control: RunningControl):
    headers = {"Authorization": f"Bearer {BOUND}"}
    async with aiohttp.ClientSession(control.url, headers=headers) as session:
        await _take(session)
        async with session.post(
            "/v1/background/v1/chat/completions", json={"model": "other"}
        ) as answer:
            assert answer.status == 403


async def test_without_a_key_nothing_is_taken(control: RunningControl):
    async with (
        aiohttp.ClientSession(control.url) as session,
        session.post("/v1/background/v1/chat/completions", json=CHAT) as answer,
    ):
        assert answer.status == 401


@pytest.mark.parametrize(
    ("key", "asked", "queue"),
    [
        (KEY, None, "background"),
        (KEY, "batch", "background"),
        (KEY, "realtime", "realtime-fallback"),
        (LOW, None, "background"),
        (LOW, "realtime", None),
    ],
)
async def test_realtime_requests_wait_apart_as_far_as_the_key_allows(
    control: RunningControl, key: str, asked: str | None, queue: str | None
):
    headers = {"Authorization": f"Bearer {key}"}
    if asked is not None:
        headers["X-Headstart-Class"] = asked
    async with (
        aiohttp.ClientSession(control.url, headers=headers) as session,
        session.post("/v1/background/v1/chat/completions", json=CHAT) as answer,
    ):
        if queue is None:
            assert answer.status == 403
            return
        known = _jobs(control).status((await answer.json())["id"])
    assert known is not None
    assert known["queue"] == queue


@pytest.mark.parametrize("job_id", ["bg_none", "batch_1-0", "x" * 300])
async def test_other_jobs_are_not_to_be_read_here(
    control: RunningControl, session: aiohttp.ClientSession, job_id: str
):
    _jobs(control).enqueue("batch", "batch", {}, "batch_1-0")
    async with session.get(f"/v1/background/{job_id}") as answer:
        assert answer.status == 404


async def test_a_webhook_is_kept_with_the_job_and_a_bad_one_refused(
    control: RunningControl, session: aiohttp.ClientSession
):
    job = await _take(session, **{"X-Headstart-Webhook": "https://there/x"})
    known = _jobs(control).status(job["id"])
    assert known is not None
    assert json.loads(json.dumps(known["payload"]))["webhook"] == "https://there/x"
    async with session.post(
        "/v1/background/v1/chat/completions", json=CHAT, headers={"X-Headstart-Webhook": "no"}
    ) as answer:
        assert answer.status == 400


async def test_a_full_queue_says_when_to_come_back(
    control: RunningControl, session: aiohttp.ClientSession
):
    _jobs(control).fault = Transient("queue background is full")
    try:
        async with session.post("/v1/background/v1/chat/completions", json=CHAT) as answer:
            assert answer.status == 503
            assert "Retry-After" in answer.headers
    finally:
        _jobs(control).fault = None
