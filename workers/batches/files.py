"""The two files that a batch ends with, put together from what became of its lines."""

from __future__ import annotations

import io
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from contracts.batches import Batch, BatchStatus, FilePurpose, FileStore, ResultLog, StoredFile
from workers.batches.lines import BatchLine
from workers.batches.outcomes import GOOD, unanswered

FILE_KEPT_S = 30 * 24 * 3600.0
"""Output and error files go after a month, as the original's do."""

_UNANSWERED = {
    BatchStatus.EXPIRED: (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Which lines went well and which did not, by number."""

    good: frozenset[int]
    bad: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """The two files, None for one that would be empty, and how many lines are in each."""

    output_file_id: str | None
    error_file_id: str | None
    good: int
    bad: int


def ends_of(records: Iterable[tuple[int, bytes]]) -> Ends:
    """What the results so far say; for a line that is there twice the first counts."""
    # Without what the records say: there may be fifty thousand answers.
    good, bad = _first_records((number, record[:1]) for number, record in records)
    return Ends(good=frozenset(good), bad=frozenset(bad))


def write_files(
    batch: Batch,
    lines: Sequence[BatchLine],
    *,
    end: BatchStatus,
    results: ResultLog,
    files: FileStore,
    now_s: float,
) -> Written:
    """Write output and error file.

    Each line of the input is in one of them at most once, in the input's order. Their ids come
    from the batch, so that writing them again after a crash replaces them.
    """
    good, bad = _first_records(results.records(batch.batch_id))
    if end in _UNANSWERED:
        code, message = _UNANSWERED[end]
        for line in lines:
            if line.number not in good and line.number not in bad:
                record = unanswered(batch.batch_id, line.number, line.custom_id, code, message)
                bad[line.number] = record[1:]
    tag = batch.batch_id.removeprefix("batch_")
    return Written(
        output_file_id=_write(f"file-{tag}-output", "output", good, batch, files, now_s),
        error_file_id=_write(f"file-{tag}-error", "error", bad, batch, files, now_s),
        good=len(good),
        bad=len(bad),
    )


def _first_records(
    records: Iterable[tuple[int, bytes]],
) -> tuple[dict[int, bytes], dict[int, bytes]]:
    good, bad = dict[int, bytes](), dict[int, bytes]()
    for number, record in records:
        if number not in good and number not in bad:
            (good if record.startswith(GOOD) else bad)[number] = record[1:]
    return good, bad


def _write(
    file_id: str,
    word: str,
    records: Mapping[int, bytes],
    batch: Batch,
    files: FileStore,
    now_s: float,
) -> str | None:
    if not records:
        return None
    files.add(
        StoredFile(
            file_id=file_id,
            filename=f"{batch.batch_id}_{word}.jsonl",
            purpose=FilePurpose.BATCH_OUTPUT,
            size_bytes=0,
            created_at_s=now_s,
            expires_at_s=now_s + FILE_KEPT_S,
            owner=batch.owner,
        ),
        _Lines(records[number] for number in sorted(records)),
    )
    return file_id


class _Lines(io.BytesIO):
    """Records as a file that is read once, without all of it in memory a second time."""

    def __init__(self, records: Iterator[bytes]) -> None:
        super().__init__()
        self._records = records

    def read(self, _size: int | None = -1, /) -> bytes:
        """The next lines; b"" at the end."""
        return b"".join(record + b"\n" for record in itertools.islice(self._records, 256))
