"""Files and batches of the OpenAI Batch API, and where they are kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import BinaryIO, Protocol

from contracts.errors import Invalid

BATCH_ENDPOINTS = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/responses",
    "/v1/moderations",
    "/v1/images/generations",
)
"""What the original takes in a batch and LocalAI serves."""

MAX_LINES = 50_000
MAX_INPUT_BYTES = 200 * 1024**2
MAX_METADATA_PAIRS = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512
WINDOWS_S = {"24h": 24 * 3600.0}
"""The completion windows there are, in seconds."""


class BatchStatus(StrEnum):
    """Where a batch is; the words of the original."""

    VALIDATING = "validating"
    FAILED = "failed"
    IN_PROGRESS = "in_progress"
    FINALIZING = "finalizing"
    COMPLETED = "completed"
    EXPIRED = "expired"
    CANCELLING = "cancelling"
    CANCELLED = "cancelled"


ENDED = frozenset(
    {BatchStatus.FAILED, BatchStatus.COMPLETED, BatchStatus.EXPIRED, BatchStatus.CANCELLED}
)
"""A batch that has come here stays as it is."""


class FilePurpose(StrEnum):
    """What a file is for."""

    BATCH = "batch"
    BATCH_OUTPUT = "batch_output"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredFile:
    """One file. ``owner`` is the digest of whoever made it, "" where nobody is told apart."""

    file_id: str
    filename: str
    purpose: FilePurpose
    size_bytes: int
    created_at_s: float
    expires_at_s: float | None = None
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchFault:
    """Why a batch was not taken. ``line`` counts from 1; None: it is about the whole file."""

    code: str
    message: str
    param: str | None = None
    line: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LineCounts:
    """How many lines there are, and how many have which end."""

    total: int = 0
    completed: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One batch: many requests in one file, answered within a window.

    Attributes
    ----------
    reached_at_s : mapping
        When it came to each status that it has been in.
    counts : LineCounts
        Lines by their end; all zero until the file was read.
    lines_per_s : float or None
        How fast lines are being done now; None: nothing measured.
    progressed_at_s : float or None
        When the last line that is told of in ``counts`` had its end.
    models : tuple of str
        Names and patterns of the models that its owner may use; empty: all.
    job_id : str
        The last job that was queued to work on it.
    revision : int
        Grows with each change; a change names the one that it was made from.
    """

    batch_id: str
    endpoint: str
    input_file_id: str
    completion_window: str
    status: BatchStatus
    created_at_s: float
    expires_at_s: float
    reached_at_s: Mapping[BatchStatus, float] = field(default_factory=dict)
    counts: LineCounts = LineCounts()
    faults: tuple[BatchFault, ...] = ()
    output_file_id: str | None = None
    error_file_id: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    lines_per_s: float | None = None
    progressed_at_s: float | None = None
    job_id: str = ""
    models: tuple[str, ...] = ()
    owner: str = ""
    revision: int = 0

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it changes any more."""
        return self.status in ENDED


class FileStore(Protocol):
    """Files on a disk that the control API and the workers share. Synchronous: it is a disk.

    Raises Transient when the disk is full or does not answer.
    """

    def add(self, file: StoredFile, source: BinaryIO) -> StoredFile:
        """Keep what ``source`` has from here to its end, all or nothing; with its real size."""
        ...

    def get(self, file_id: str) -> StoredFile | None: ...  # noqa: D102

    def list(self) -> tuple[StoredFile, ...]:
        """Oldest first."""
        ...

    def open(self, file_id: str) -> BinaryIO:
        """Its content. Raises Invalid when there is none."""
        ...

    def delete(self, file_id: str) -> bool:
        """Whether there was one."""
        ...


class ResultLog(Protocol):
    """What became of a batch's lines, on disk; written line by line as they end.

    A run writes a segment of its own, so that a run that was killed damages at most its last
    record, and two runs at once cannot mix. For a line that is there twice the first counts.
    """

    def begin(self, batch_id: str) -> ResultSegment:
        """A new segment."""
        ...

    def records(self, batch_id: str) -> Iterator[tuple[int, bytes]]:
        """Line number and record of all that was written whole, oldest segment first."""
        ...

    def remove(self, batch_id: str) -> None:
        """Forget all segments."""
        ...


class ResultSegment(Protocol):
    """One run's results."""

    def append(self, line: int, record: bytes) -> None:
        """Once it returns a killed process does not lose it. Raises Transient."""
        ...

    def close(self) -> None: ...  # noqa: D102


class BatchStore(Protocol):
    """The state of every batch. Raises Transient."""

    async def add(self, batch: Batch) -> None: ...  # noqa: D102

    async def get(self, batch_id: str) -> Batch | None: ...  # noqa: D102

    async def replace(self, batch: Batch) -> Batch | None:
        """Write a change of the batch whose ``revision`` it carries.

        The batch with its new revision; None when somebody changed it since, or it is gone.
        """
        ...

    async def list(self) -> tuple[Batch, ...]:
        """Newest first."""
        ...

    async def remove(self, batch_id: str) -> None: ...  # noqa: D102

    async def take(self, batch_id: str, owner: str, *, hold_s: float) -> bool:
        """Whether ``owner`` may work on it for ``hold_s`` real seconds from now."""
        ...

    async def is_taken(self, batch_id: str) -> bool:
        """Whether anybody works on it."""
        ...

    async def let_go(self, batch_id: str, owner: str) -> None: ...  # noqa: D102


def check_metadata(metadata: Mapping[str, str]) -> None:
    """Raise Invalid where the original would."""
    if len(metadata) > MAX_METADATA_PAIRS:
        raise Invalid(f"metadata has {len(metadata)} pairs; at most {MAX_METADATA_PAIRS}")
    for key, value in metadata.items():
        if not 0 < len(key) <= MAX_METADATA_KEY_CHARS:
            raise Invalid(f"metadata: a key has 1 to {MAX_METADATA_KEY_CHARS} characters")
        if len(value) > MAX_METADATA_VALUE_CHARS:
            raise Invalid(
                f'metadata: the value of "{key}" has {len(value)} characters; '
                f"at most {MAX_METADATA_VALUE_CHARS}"
            )
