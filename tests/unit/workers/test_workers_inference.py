"""One background request: what is taken, when it waits, what becomes of the answer."""

from __future__ import annotations

import asyncio
import base64
import json

import pytest

from contracts.errors import Invalid, Permanent, Transient
from contracts.ids import ModelId, NodeId
from contracts.jobs import read_request
from contracts.world import ModelStatus, Residency, WorldSnapshot
from simulator.clock import VirtualClock
from simulator.memory_jobs import MemoryInferenceGateway, MemoryJobQueue, MemoryJobResults
from simulator.memory_ports import MemoryForecastStore, MemorySnapshotStore
from workers.handlers.inference import run
from workers.queues import QUEUES
from workers.retry import Held
from workers.tools import JobContext, Tools

CHAT = {"path": "/v1/chat/completions", "model": "llama", "body": {"messages": []}}


def _tools(gateway, *, clock=None, snapshots=None, jobs=None):
    return Tools(
        clock=clock or VirtualClock(1000.0),
        results=MemoryJobResults(),
        jobs=jobs or MemoryJobQueue(QUEUES),
        gateway=gateway,
        snapshots=snapshots or MemorySnapshotStore(),
        forecasts=MemoryForecastStore(),
        logs={},
    )


def _failing(error):
    gateway = MemoryInferenceGateway()
    gateway.fault = error
    return gateway


def _context(queue="background", waited_s=0.0):
    return JobContext(job_id="j1", queue=queue, waited_s=waited_s)


def test_the_model_is_put_into_a_body_that_names_none_and_the_rest_stays():
    request = read_request({"path": "/v1/embeddings", "model": "e", "body": {"input": "grün"}})
    assert (request.path, request.model) == ("/v1/embeddings", "e")
    assert json.loads(request.body) == {"input": "grün", "model": "e"}
    assert read_request({"path": "/v1/embeddings", "body": {"model": "e"}}).model == "e"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "/models/delete/llama"}, "path"),
        ({"path": "/v1/chat/completions/../../models/apply"}, "path"),
        ({"path": "http://elsewhere/v1/chat/completions"}, "path"),
        ({"path": None}, "path"),
        ({"body": "text"}, "body: must be"),
        ({"body": [1]}, "body: must be"),
        ({"model": ""}, "model: must"),
        ({"model": 3}, "model: must"),
        ({"body": {"model": "other"}}, "the payload says"),
        ({"body": {"stream": True}}, "stream"),
        ({"body": {"MODEL": "other"}}, "another model"),
        ({"priority": 1}, 'unknown "priority"'),
        ({"webhook": 3}, "webhook: must be a URL"),
    ],
)
def test_what_is_no_request_is_refused_with_what_is_wrong(change, message):
    with pytest.raises(Invalid, match=message):
        read_request(CHAT | change)


async def test_the_gateway_gets_the_class_of_the_queue_and_the_job_as_request_id():
    gateway = MemoryInferenceGateway(b'{"ok":true}')
    await run(CHAT, _context(), _tools(gateway))
    await run(CHAT, _context("batch"), _tools(gateway))
    await run(CHAT, _context("realtime-fallback"), _tools(gateway))
    assert [call[2]["X-Headstart-Class"] for call in gateway.calls] == [
        "background",
        "batch",
        "realtime",
    ]
    path, body, headers = gateway.calls[0]
    assert (path, json.loads(body)) == (CHAT["path"], {"messages": [], "model": "llama"})
    assert headers["X-Request-ID"] == "j1"


async def test_a_text_answer_is_kept_as_text_another_as_base64():
    text = await run(CHAT, _context(), _tools(MemoryInferenceGateway(b'{"ok":true}')))
    assert (text["status"], text["encoding"], text["body"]) == (200, "utf-8", '{"ok":true}')
    sound = MemoryInferenceGateway(b"\x00\xff", content_type="audio/wav")
    kept = await run(CHAT, _context(), _tools(sound))
    assert kept["encoding"] == "base64"
    assert base64.b64decode(str(kept["body"])) == b"\x00\xff"


@pytest.mark.parametrize("error", [Transient("503", retry_after_s=3.0), Permanent("404")])
async def test_what_the_gateway_says_is_passed_on(error):
    with pytest.raises(type(error)):
        await run(CHAT, _context(), _tools(_failing(error)))


async def test_a_job_whose_model_is_cold_is_held_and_starts_after_two_minutes():
    clock, snapshots, gateway = (
        VirtualClock(1000.0),
        MemorySnapshotStore(),
        MemoryInferenceGateway(b'{"ok":true}'),
    )
    cold = ModelStatus(model=ModelId("llama"), node=NodeId("n"), residency=Residency.COLD)
    await snapshots.put_world(WorldSnapshot(taken_at_s=1000.0, models={cold.model: cold}))
    tools = _tools(gateway, clock=clock, snapshots=snapshots)
    with pytest.raises(Held) as held:
        await run(CHAT, _context(), tools)
    assert (str(held.value), held.value.after_s) == ("not_resident", 5.0)
    assert gateway.calls == []
    await run(CHAT, _context(waited_s=120.0), tools)
    assert len(gateway.calls) == 1


async def test_a_second_job_of_the_class_waits_for_the_first():
    jobs = MemoryJobQueue(QUEUES)
    for name in ("j0", "j1"):
        jobs.enqueue("background", "inference", CHAT, name)
        jobs.move(name, "started")
    with pytest.raises(Held, match="class_slots_full"):
        await run(CHAT, _context(), _tools(MemoryInferenceGateway(b'{"ok":true}'), jobs=jobs))


async def test_stores_that_are_away_hold_nobody():
    snapshots, jobs = MemorySnapshotStore(), MemoryJobQueue(QUEUES)
    snapshots.fault = jobs.fault = Transient("away")
    result = await run(
        CHAT,
        _context(),
        _tools(MemoryInferenceGateway(b'{"ok":true}'), snapshots=snapshots, jobs=jobs),
    )
    assert result["status"] == 200


async def test_cancelling_the_job_cancels_its_request():
    gateway = MemoryInferenceGateway()
    gateway.gate = asyncio.Event()
    task = asyncio.create_task(run(CHAT, _context(), _tools(gateway)))
    await gateway.asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert gateway.cancelled == 1
