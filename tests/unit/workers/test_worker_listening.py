"""A worker goes on listening for commands, whatever Redis answers meanwhile."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest
import redis

from workers.worker import QueueWorker


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> QueueWorker:
    monkeypatch.setattr("rq.worker.base.time.sleep", lambda _s: None)
    made = QueueWorker.__new__(QueueWorker)
    made.name = "w"
    made.log = logging.getLogger("rq.worker")
    return made


@pytest.mark.parametrize(
    "error",
    [
        redis.ConnectionError("reset"),
        redis.ResponseError("MISCONF Errors writing to the AOF file: No space left on device"),
        redis.ResponseError("UNBLOCKED force unblock"),
        redis.ReadOnlyError("READONLY"),
        redis.BusyLoadingError("LOADING"),
    ],
)
def test_an_outage_does_not_end_it(worker: QueueWorker, error: redis.RedisError):
    try:
        raise error
    except redis.RedisError as raised:
        worker._pubsub_exception_handler(raised, Mock(), Mock())


def test_a_bug_does(worker: QueueWorker):
    records: dict[str, str] = {}
    try:
        records["status"]
    except KeyError as raised:
        with pytest.raises(KeyError):
            worker._pubsub_exception_handler(raised, Mock(), Mock())
