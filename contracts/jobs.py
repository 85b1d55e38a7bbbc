"""What a background job is, wherever it is queued: its id, its arguments, its states."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from contracts.config import JobQueueConfig
from contracts.errors import Invalid
from contracts.ids import ModelId
from contracts.model_names import check_one_model

JOB_ID_MAX = 200
CANCELLED = "cancelled by its caller"
"""The error of a job that nobody wants any more."""

PAYLOAD_MAX_BYTES = 8 * 1024**2
"""A prompt with a few images; bigger inputs belong into a file that the job names."""

INFERENCE_KIND = "inference"
"""Jobs that ask a model something."""

# A background job must not be a way to the admin API, so paths are named, not excluded.
BACKGROUND_PATHS = frozenset(
    {
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/edits",
        "/v1/embeddings",
        "/v1/moderations",
        "/v1/responses",
        "/v1/messages",
        "/v1/rerank",
        "/v1/audio/speech",
        "/v1/images/generations",
        "/v1/videos",
        "/v1/detection",
        "/v1/tokenize",
        "/v1/vad",
        "/v1/sound-generation",
        "/tts",
        "/vad",
        "/video",
        "/api/chat",
        "/api/generate",
        "/api/embed",
    }
)

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


def json_bytes(value: object) -> bytes:
    """The value as JSON in UTF-8; half surrogates, which that cannot carry, stay escaped.

    Raises ValueError for numbers that are not finite, RecursionError for what is nested too deep.
    """
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(value, allow_nan=False).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRequest:
    """A request as it waits in a queue."""

    path: str
    model: ModelId
    body: bytes
    webhook: str | None = None
    """Who is told when it is over."""


def read_request(payload: Mapping[str, object]) -> StoredRequest:
    """The request in a job's payload ``{path, model, body, webhook}``. Pure.

    ``body`` is a JSON object; ``model`` may be left out where the body names one.

    Raises
    ------
    Invalid
        With what is wrong and what is taken.
    """
    unknown = sorted(set(payload) - {"path", "model", "body", "webhook"})
    if unknown:
        raise Invalid(f'payload: unknown "{unknown[0]}"; it takes path, model and body')
    path = payload.get("path")
    if not isinstance(path, str) or path not in BACKGROUND_PATHS:
        raise Invalid(f"path {path!r:.100}: must be one of {', '.join(sorted(BACKGROUND_PATHS))}")
    body = payload.get("body")
    if not isinstance(body, Mapping):
        raise Invalid("body: must be a JSON object")
    model = payload.get("model", body.get("model"))
    if not isinstance(model, str) or not model:
        raise Invalid("model: must name a model, in the payload or in the body")
    if body.get("model", model) != model:
        raise Invalid(f"model: the payload says {model!r:.100}, the body {body['model']!r:.100}")
    check_one_model({**body, "model": model})
    if body.get("stream"):
        raise Invalid("body.stream: must be false, since the answer is kept as a whole")
    try:
        sent = json_bytes({**body, "model": model})
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid(f"body: cannot be written as JSON: {error}") from error
    webhook = payload.get("webhook")
    if webhook is not None and not isinstance(webhook, str):
        raise Invalid("webhook: must be a URL")
    return StoredRequest(path=path, model=ModelId(model), body=sent, webhook=webhook)
