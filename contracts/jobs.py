"""What a background job is, wherever it is queued: its id, its arguments, its states."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from enum import StrEnum

from contracts.config import JobQueueConfig
from contracts.errors import Invalid

JOB_ID_MAX = 200
PAYLOAD_MAX_BYTES = 8 * 1024**2
"""A prompt with a few images; bigger inputs belong into a file that the job names."""

_JOB_ID = re.compile(r"[A-Za-z0-9_-]+")


class JobState(StrEnum):
    """Where a job is. Those that wait for a time are ``scheduled``, held ones too."""

    QUEUED = "queued"
    STARTED = "started"
    FINISHED = "finished"
    FAILED = "failed"
    SCHEDULED = "scheduled"


def check_job(
    queues: Mapping[str, JobQueueConfig], queue: str, kind: str, payload: object, job_id: str
) -> JobQueueConfig:
    """The queue's bounds, when the job may be queued there; else raises Invalid."""
    if queue not in queues:
        raise Invalid(f'queue "{queue}": must be one of {", ".join(queues)}')
    if not kind:
        raise Invalid("a job needs a kind")
    if len(job_id) > JOB_ID_MAX or not _JOB_ID.fullmatch(job_id):
        raise Invalid(
            f'job id "{job_id[:JOB_ID_MAX]}": must be 1 to {JOB_ID_MAX} letters, digits, - or _'
        )
    if not isinstance(payload, Mapping):
        raise Invalid("a job's payload must be a mapping")
    size = payload_bytes(payload)
    if size > PAYLOAD_MAX_BYTES:
        raise Invalid(f"the payload has {size} bytes; at most {PAYLOAD_MAX_BYTES} are taken")
    return queues[queue]


def payload_bytes(payload: Mapping[str, object]) -> int:
    """How long the payload is as JSON; Invalid for what JSON cannot carry."""
    try:
        return len(json.dumps(payload, allow_nan=False).encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"the payload cannot be written as JSON: {error}") from error
