"""Files and batches in the original's shapes. What is not there yet is null."""

from __future__ import annotations

import math
from typing import Annotated, Literal

from pydantic import Field
from pydantic.config import JsonDict

from api.control.schemas import Asked, Schema
from contracts.batches import (
    BATCH_ENDPOINTS,
    MAX_METADATA_KEY_CHARS,
    MAX_METADATA_PAIRS,
    MAX_METADATA_VALUE_CHARS,
    WINDOWS_S,
    Batch,
    BatchStatus,
    StoredFile,
)

_METADATA_SCHEMA: JsonDict = {
    "maxProperties": MAX_METADATA_PAIRS,
    "propertyNames": {"minLength": 1, "maxLength": MAX_METADATA_KEY_CHARS},
    "additionalProperties": {"type": "string", "maxLength": MAX_METADATA_VALUE_CHARS},
}


class FileView(Schema):
    """One file."""

    id: str
    object: Literal["file"] = "file"
    bytes: int
    created_at: int
    expires_at: int | None
    filename: str
    purpose: str
    status: Literal["processed"] = "processed"


class FileDeleted(Schema):
    """A file that was deleted."""

    id: str
    object: Literal["file"] = "file"
    deleted: bool = True


class BatchBody(Asked):
    """A batch to start."""

    input_file_id: Annotated[str, Field(min_length=1, max_length=200)]
    endpoint: Annotated[
        str, Field(max_length=200, json_schema_extra={"enum": list(BATCH_ENDPOINTS)})
    ]
    completion_window: Annotated[
        str, Field(max_length=20, json_schema_extra={"enum": list(WINDOWS_S)})
    ] = "24h"
    metadata: dict[str, str] | None = Field(default=None, json_schema_extra=_METADATA_SCHEMA)


class FaultView(Schema):
    """Why a batch failed; ``line`` counts from 1."""

    code: str
    message: str
    param: str | None
    line: int | None


class FaultList(Schema):
    """All that is wrong with a batch's file."""

    object: Literal["list"] = "list"
    data: list[FaultView]


class CountsView(Schema):
    """How many requests there are, and how many have which end."""

    total: int
    completed: int
    failed: int


class ProgressView(Schema):
    """How fast it goes; beside what the original tells."""

    lines_per_s: float | None
    rest_s: float | None


class BatchView(Schema):
    """One batch."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: FaultList | None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None
    error_file_id: str | None
    created_at: int
    in_progress_at: int | None
    expires_at: int
    finalizing_at: int | None
    completed_at: int | None
    failed_at: int | None
    expired_at: int | None
    cancelling_at: int | None
    cancelled_at: int | None
    request_counts: CountsView
    metadata: dict[str, str] | None
    headstart: ProgressView


def file_view(file: StoredFile) -> FileView:
    """A file as the original shows it."""
    return FileView(
        id=file.file_id,
        bytes=file.size_bytes,
        created_at=int(file.created_at_s),
        expires_at=None if file.expires_at_s is None else int(file.expires_at_s),
        filename=file.filename,
        purpose=file.purpose.value,
    )


def batch_view(batch: Batch) -> BatchView:
    """A batch as the original shows it."""
    counts, rate = batch.counts, batch.lines_per_s
    left = counts.total - counts.completed - counts.failed
    faults = [
        FaultView(code=fault.code, message=fault.message, param=fault.param, line=fault.line)
        for fault in batch.faults
    ]
    return BatchView(
        id=batch.batch_id,
        endpoint=batch.endpoint,
        errors=FaultList(data=faults) if faults else None,
        input_file_id=batch.input_file_id,
        completion_window=batch.completion_window,
        status=batch.status,
        output_file_id=batch.output_file_id,
        error_file_id=batch.error_file_id,
        created_at=int(batch.created_at_s),
        expires_at=int(batch.expires_at_s),
        in_progress_at=_reached(batch, BatchStatus.IN_PROGRESS),
        finalizing_at=_reached(batch, BatchStatus.FINALIZING),
        completed_at=_reached(batch, BatchStatus.COMPLETED),
        failed_at=_reached(batch, BatchStatus.FAILED),
        expired_at=_reached(batch, BatchStatus.EXPIRED),
        cancelling_at=_reached(batch, BatchStatus.CANCELLING),
        cancelled_at=_reached(batch, BatchStatus.CANCELLED),
        request_counts=CountsView(
            total=counts.total, completed=counts.completed, failed=counts.failed
        ),
        metadata=dict(batch.metadata) or None,
        headstart=ProgressView(
            lines_per_s=rate, rest_s=math.ceil(left / rate) if rate and left else None
        ),
    )


def _reached(batch: Batch, status: BatchStatus) -> int | None:
    at_s = batch.reached_at_s.get(status)
    return None if at_s is None else int(at_s)
