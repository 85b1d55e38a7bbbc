from __future__ import annotations

from typing import Any

import pytest

from contracts.config import JobQueueConfig
from contracts.errors import Invalid
from contracts.jobs import JOB_ID_MAX, PAYLOAD_MAX_BYTES, check_job, payload_bytes

QUEUES = {"batch": JobQueueConfig(name="batch", capacity=10)}


def test_a_job_within_bounds_gets_its_queue():
    assert check_job(QUEUES, "batch", "inference", {"a": 1}, "job-1_a") is QUEUES["batch"]


@pytest.mark.parametrize(
    ("queue", "kind", "payload", "job_id", "said"),
    [
        ("nightly", "k", {}, "a", "must be one of batch"),
        ("batch", "", {}, "a", "needs a kind"),
        ("batch", "k", {}, "", "letters, digits"),
        ("batch", "k", {}, "a b", "letters, digits"),
        ("batch", "k", {}, "a" * (JOB_ID_MAX + 1), "letters, digits"),
        ("batch", "k", ["x"], "a", "must be a mapping"),
        ("batch", "k", {"x": "y" * PAYLOAD_MAX_BYTES}, "a", "at most"),
        ("batch", "k", {"x": float("nan")}, "a", "JSON"),
        ("batch", "k", {"x": object()}, "a", "JSON"),
    ],
)
def test_what_is_out_of_bounds_is_named(
    queue: str, kind: str, payload: Any, job_id: str, said: str
):
    with pytest.raises(Invalid, match=said):
        check_job(QUEUES, queue, kind, payload, job_id)


def test_the_size_is_that_of_the_json():
    assert payload_bytes({"ü": 1}) == len('{"\\u00fc": 1}')
