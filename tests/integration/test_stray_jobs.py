"""A job that a refused write left in no list is found and queued again."""

from __future__ import annotations

import pytest
import redis
from rq import Queue
from rq.job import JobStatus
from rq.serializers import JSONSerializer

from workers import strays as strays_module
from workers.strays import STRAY_S, Strays

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("status", [JobStatus.SCHEDULED, JobStatus.QUEUED, JobStatus.STARTED])
def test_a_job_in_no_list_is_queued_again_and_only_then(redis_url: str, status: JobStatus):
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        queue = Queue("background", connection=client, serializer=JSONSerializer)
        other = Queue("batch", connection=client, serializer=JSONSerializer)
        stray = queue.enqueue("workers.jobs.run", job_id="stray")
        waiting = queue.enqueue("workers.jobs.run", job_id="waiting")
        over = queue.enqueue("workers.jobs.run", job_id="over")
        others = other.enqueue("workers.jobs.run", job_id="others")
        for job in (stray, over):
            client.lrem(queue.key, 0, job.id)
        client.lrem(other.key, 0, others.id)
        stray.set_status(status)
        over.set_status(JobStatus.FINISHED)
        strays = Strays(client)
        assert strays.recover(queue, 100.0) == ()
        assert strays.recover(queue, 100.0 + STRAY_S - 1.0) == ()
        assert strays.recover(queue, 100.0 + STRAY_S) == ("stray",)
        assert queue.get_job_ids() == [waiting.id, stray.id]
        assert stray.get_status() is JobStatus.QUEUED
        assert strays.recover(queue, 1000.0) == ()


def test_jobs_that_vanished_take_no_room_for_ever(redis_url: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(strays_module, "_MAX_SEEN", 1)
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        queue = Queue("background", connection=client, serializer=JSONSerializer)
        strays = Strays(client)
        for job_id in ("vanishes", "stays"):
            queue.enqueue("workers.jobs.run", job_id=job_id)
            client.lrem(queue.key, 0, job_id)
            assert strays.recover(queue, 100.0) == ()
            if job_id == "vanishes":
                client.delete("rq:job:vanishes")
        assert strays.recover(queue, 200.0) == ()
        assert strays.recover(queue, 4000.0) == ()
        assert strays.recover(queue, 4000.0 + STRAY_S) == ("stays",)


def test_a_job_that_moves_is_none(redis_url: str):
    with redis.Redis.from_url(redis_url, protocol=2) as client:
        queue = Queue("background", connection=client, serializer=JSONSerializer)
        queue.enqueue("workers.jobs.run", job_id="moves")
        strays = Strays(client)
        client.lrem(queue.key, 0, "moves")
        assert strays.recover(queue, 100.0) == ()
        client.rpush(queue.key, "moves")
        assert strays.recover(queue, 120.0) == ()
        client.lrem(queue.key, 0, "moves")
        assert strays.recover(queue, 140.0) == ()
