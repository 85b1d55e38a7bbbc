"""``JobQueue`` and ``JobResults``: in memory and over RQ and Redis, the same behaviour."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from rq import Queue
from rq.job import Job, JobStatus
from rq.registry import FailedJobRegistry
from rq.serializers import JSONSerializer

from adapters.redis_blocking import connect_blocking
from adapters.redis_client import connect
from adapters.redis_job_results import RedisJobResults
from adapters.rq_queue import RqJobQueue
from contracts.config import JobQueueConfig
from contracts.errors import Invalid, Transient
from contracts.jobs import CANCELLED, JobState
from contracts.ports import JobQueue, JobResults
from simulator.memory_jobs import MemoryJobQueue, MemoryJobResults

QUEUES = {
    name: JobQueueConfig(name=name, capacity=capacity)
    for name, capacity in (("background", 100), ("small", 2))
}
EMPTY = {state.value: 0 for state in JobState}


@pytest.fixture(params=["memory", "redis"])
def jobs(request: pytest.FixtureRequest) -> Iterator[JobQueue]:
    if request.param == "memory":
        yield MemoryJobQueue(QUEUES)
        return
    with connect_blocking(request.getfixturevalue("redis_url")) as client:
        yield RqJobQueue(client, QUEUES)


def test_a_job_is_queued_once_whatever_it_says_the_second_time(jobs: JobQueue):
    assert jobs.enqueue("background", "inference", {"n": 1}, "job-1")
    assert not jobs.enqueue("background", "inference", {"n": 2}, "job-1")
    assert not jobs.enqueue("small", "other", {}, "job-1")
    assert jobs.counts() == {"background": EMPTY | {"queued": 1}, "small": EMPTY}


def test_status_tells_what_is_known_and_none_for_a_stranger(jobs: JobQueue):
    assert jobs.status("job-1") is None
    jobs.enqueue("background", "inference", {"prompt": "secret words"}, "job-1")
    status = jobs.status("job-1")
    assert status is not None
    told = {name: status[name] for name in ("job_id", "queue", "kind", "state", "result", "error")}
    assert told == {
        "job_id": "job-1",
        "queue": "background",
        "kind": "inference",
        "state": "queued",
        "result": None,
        "error": None,
    }


@pytest.mark.parametrize(
    ("queue", "kind", "payload", "job_id", "message"),
    [
        ("express", "k", {}, "j", 'queue "express": must be one of background, small'),
        ("background", "", {}, "j", "needs a kind"),
        ("background", "k", {}, "", "job id"),
        ("background", "k", {}, "a:b", "job id"),
        ("background", "k", {}, "j" * 201, "job id"),
        ("background", "k", {}, "ü", "job id"),
        ("background", "k", [1], "j", "must be a mapping"),
        ("background", "k", {"a": object()}, "j", "cannot be written as JSON"),
        ("background", "k", {"a": float("nan")}, "j", "cannot be written as JSON"),
        ("background", "k", {"a": "x" * (8 * 1024**2)}, "j", "bytes; at most"),
    ],
)
def test_what_can_never_be_queued_is_invalid(
    jobs: JobQueue, queue: str, kind: str, payload: dict[str, object], job_id: str, message: str
):
    with pytest.raises(Invalid, match=message):
        jobs.enqueue(queue, kind, payload, job_id)
    assert jobs.counts() == {"background": EMPTY, "small": EMPTY}


def _fail(jobs: JobQueue, job_id: str, error: str) -> None:
    """As a worker does with a job that cannot succeed."""
    if isinstance(jobs, MemoryJobQueue):
        jobs.move(job_id, JobState.FAILED, error=error)
        return
    assert isinstance(jobs, RqJobQueue)
    job = Job.fetch(job_id, connection=jobs._client, serializer=JSONSerializer)
    Queue(job.origin, connection=jobs._client, serializer=JSONSerializer).remove(job)
    job.meta = {"error": error, "attempts": {"failures": 6}}
    job.save_meta()
    job.set_status(JobStatus.FAILED)
    registry = FailedJobRegistry(job.origin, connection=jobs._client, serializer=JSONSerializer)
    registry.add(job, ttl=100)


def test_dead_letters_are_listed_with_their_reason_and_may_be_tried_again(jobs: JobQueue):
    for number in range(3):
        jobs.enqueue("background", "inference", {}, f"job-{number}")
    _fail(jobs, "job-1", "404: no such model")
    (letter,) = jobs.failed("background", limit=10)
    assert (letter["job_id"], letter["error"]) == ("job-1", "404: no such model")
    assert jobs.failed("small", limit=10) == ()
    assert not jobs.retry("job-0"), "it has not failed"
    assert not jobs.retry("job-x")
    assert jobs.retry("job-1")
    status = jobs.status("job-1")
    assert status is not None
    assert (status["state"], status["error"]) == ("queued", None)
    assert jobs.failed("background", limit=10) == ()


def test_so_many_dead_letters_are_listed(jobs: JobQueue):
    for number in range(5):
        jobs.enqueue("background", "inference", {}, f"job-{number}")
        _fail(jobs, f"job-{number}", "no")
    assert len(jobs.failed("background", limit=3)) == 3
    with pytest.raises(Invalid, match="must be one of background, small"):
        jobs.failed("express", limit=3)


def test_a_job_that_waits_can_be_dropped_and_is_no_dead_letter(jobs: JobQueue):
    jobs.enqueue("background", "inference", {}, "job-1")
    assert jobs.drop("job-1")
    assert not jobs.drop("job-1")
    assert not jobs.drop("job-x")
    status = jobs.status("job-1")
    assert status is not None
    assert (status["state"], status["error"]) == ("failed", CANCELLED)
    assert jobs.counts()["background"]["queued"] == 0
    assert jobs.failed("background", limit=10) == ()
    assert not jobs.retry("job-1")


def test_a_full_queue_refuses_for_now_and_others_still_take(jobs: JobQueue):
    assert jobs.enqueue("small", "k", {}, "j1")
    assert jobs.enqueue("small", "k", {}, "j2")
    with pytest.raises(Transient, match="queue small is full: 2 jobs wait"):
        jobs.enqueue("small", "k", {}, "j3")
    assert jobs.enqueue("background", "k", {}, "j3")


@pytest.fixture(params=["memory", "redis"])
async def results(request: pytest.FixtureRequest):
    if request.param == "memory":
        yield MemoryJobResults()
        return
    async with connect(request.getfixturevalue("redis_url")) as client:
        yield RedisJobResults(client, ttl_s=60)


async def test_the_first_result_of_a_job_is_its_result_for_good(results: JobResults):
    assert await results.get("j1") is None
    assert await results.commit("j1", {"body": "grün", "n": [1, None]})
    assert not await results.commit("j1", {"body": "other"})
    assert await results.get("j1") == {"body": "grün", "n": [1, None]}
    assert await results.get("j2") is None


async def test_a_cancelled_job_is_known_as_such(results: JobResults):
    assert not await results.is_cancelled("job-1")
    await results.cancel("job-1")
    assert await results.is_cancelled("job-1")
    assert not await results.is_cancelled("job-2")


async def test_a_result_that_json_cannot_carry_is_an_error_not_a_result(results: JobResults):
    with pytest.raises(ValueError, match="JSON"):
        await results.commit("j1", {"n": float("inf")})
    assert await results.get("j1") is None


def test_a_server_that_is_away_is_transient_for_every_question():
    with connect_blocking("unix:///nowhere/s") as client:
        jobs = RqJobQueue(client, QUEUES)
        with pytest.raises(Transient):
            jobs.enqueue("background", "k", {}, "j1")
        with pytest.raises(Transient):
            jobs.counts()
        with pytest.raises(Transient):
            jobs.status("j1")
        with pytest.raises(Transient):
            jobs.workers("background")
        # Nothing can be wrong with the address of a server that nobody asks.
        with pytest.raises(Invalid, match="must specify one of the following schemes"):
            connect_blocking("http://redis")


def test_a_server_that_is_full_refuses_jobs_for_now(start_redis):
    server = start_redis(maxmemory="1mb", **{"maxmemory-policy": "noeviction"})
    with connect_blocking(server.url) as client:
        jobs = RqJobQueue(client, QUEUES)
        with pytest.raises(Transient, match="OutOfMemory"):
            jobs.enqueue("background", "k", {"a": "x" * 100}, "j1")
        assert jobs.status("j1") is None


def test_a_record_that_cannot_be_read_is_an_error_not_an_answer(redis_url: str):
    with connect_blocking(redis_url) as client:
        jobs = RqJobQueue(client, QUEUES)
        jobs.enqueue("background", "k", {}, "j1")
        client.hset("rq:job:j1", "status", "no-such-state")
        with pytest.raises(Invalid, match="job j1 cannot be read"):
            jobs.status("j1")
