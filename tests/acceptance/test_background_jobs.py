"""Background jobs through the whole deployment: done once, and their results are to be read."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from adapters.redis_blocking import connect_blocking
from adapters.rq_queue import RqJobQueue
from tests.acceptance.deployment import Deployment, of_kind
from workers.queues import QUEUES

pytestmark = [pytest.mark.acceptance, pytest.mark.timeout(240)]

CHAT = {"messages": [{"role": "user", "content": "Summarise this."}], "max_tokens": 5}


async def enqueue(
    deployment: Deployment, queue: str, kind: str, payload: Mapping[str, object], job_id: str
) -> bool:
    """Queue a job, as the part that takes them does."""

    def put() -> bool:
        with connect_blocking(deployment.stack.redis_url) as client:
            return RqJobQueue(client, QUEUES).enqueue(queue, kind, payload, job_id)

    return await asyncio.to_thread(put)


async def finished(deployment: Deployment, job_id: str) -> dict[str, Any]:
    """The job as the control API shows it, once it is over."""
    status: dict[str, Any] = {}

    async def over() -> bool:
        answer = await deployment.control("GET", f"/v1/jobs/{job_id}")
        assert answer.status == 200, answer.text
        status.update(answer.json["status"])
        return status["state"] in ("finished", "failed")

    await deployment.until(over, f"job {job_id} is over")
    return status


def chat(model: str) -> dict[str, object]:
    return {"path": "/v1/chat/completions", "model": model, "body": CHAT}


async def test_an_inference_job_is_done_and_its_result_is_to_be_read(office: Deployment):
    assert (await office.chat("small-g")).status == 200
    start = await office.mark()
    assert await enqueue(office, "background", "inference", chat("small-g"), "summary-1")
    assert not await enqueue(office, "background", "inference", chat("small-g"), "summary-1")

    job = await finished(office, "summary-1")
    assert job["state"] == "finished", job
    result = job["result"]
    assert (result["status"], result["encoding"]) == (200, "utf-8")
    answer = json.loads(result["body"])
    assert answer["model"] == "small-g"
    assert answer["choices"][0]["message"]["content"]
    received = of_kind(await office.events(start), "request_received", "small-g")
    assert [event["request_id"] for event in received] == ["summary-1"], "asked once"


async def test_a_job_whose_model_is_cold_is_held_until_somebody_else_has_it_loaded(
    office: Deployment,
):
    # Memory is full of what people have just used: nothing is evicted for a job.
    for people in ("chat-a", "chat-b", "chat-c"):
        assert (await office.chat(people)).status == 200
    assert await enqueue(office, "background", "inference", chat("chat-h"), "summary-2")

    async def held() -> bool:
        status = (await office.control("GET", "/v1/jobs/summary-2")).json["status"]
        return bool(status["state"] == "scheduled")

    await office.until(held, "the job is put back")
    assert await office.residency("chat-h") == "cold"
    assert (await office.chat("chat-h")).status == 200
    job = await finished(office, "summary-2")
    assert job["state"] == "finished", job
    assert job["result"]["status"] == 200


async def test_a_job_loads_its_model_where_there_is_room(office: Deployment):
    start = await office.mark()
    assert await enqueue(office, "background", "inference", chat("small-h"), "summary-3")
    job = await finished(office, "summary-3")
    assert job["state"] == "finished", job
    events = await office.events(start)
    assert len(of_kind(events, "load_started", "small-h")) == 1
    assert of_kind(events, "unload_started") == []


async def test_a_job_that_stands_for_a_realtime_request_loads_its_model_at_once(
    office: Deployment,
):
    start = await office.mark()
    assert await enqueue(office, "realtime-fallback", "inference", chat("small-i"), "urgent-1")
    job = await finished(office, "urgent-1")
    assert job["state"] == "finished", job
    assert len(of_kind(await office.events(start), "load_started", "small-i")) == 1


async def test_a_job_for_an_unknown_model_fails_and_says_why(office: Deployment):
    assert await enqueue(
        office, "realtime-fallback", "inference", chat("no-such-model"), "hopeless-1"
    )
    job = await finished(office, "hopeless-1")
    assert job["state"] == "failed"
    assert "404" in job["error"]
    assert "Traceback" not in job["error"]


async def test_maintenance_runs(office: Deployment):
    assert await enqueue(office, "maintenance", "retention", {}, "retention-by-hand")
    job = await finished(office, "retention-by-hand")
    assert job["state"] == "finished", job
    assert set(job["result"]["trimmed"]) == {"events", "decisions"}


async def test_jobs_are_counted_by_queue_and_state(office: Deployment):
    assert await enqueue(office, "maintenance", "retention", {}, "retention-to-count")
    await finished(office, "retention-to-count")
    listed = await office.control("GET", "/v1/jobs")
    assert listed.status == 200
    counts = {row["id"]: row["counts"] for row in listed.json["data"]}
    assert set(counts) == set(QUEUES)
    assert counts["maintenance"]["finished"] >= 1
    assert (await office.control("GET", "/v1/jobs/nobody-queued-this")).status == 404
