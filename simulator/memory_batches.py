"""The stores of batches in memory: the same behaviour without disk and Redis."""
# ruff: noqa: D102 - the ports say what each method does

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import replace
from typing import BinaryIO

from contracts.batches import Batch, StoredFile
from contracts.errors import Invalid
from simulator.memory_streams import Faulty


class MemoryFileStore(Faulty):
    """``FileStore`` in memory."""

    def __init__(self) -> None:
        self._files: dict[str, tuple[StoredFile, bytes]] = {}

    def add(self, file: StoredFile, source: BinaryIO) -> StoredFile:
        self._check()
        content = source.read()
        kept = replace(file, size_bytes=len(content))
        self._files[file.file_id] = (kept, content)
        return kept

    def get(self, file_id: str) -> StoredFile | None:
        self._check()
        found = self._files.get(file_id)
        return None if found is None else found[0]

    def list(self) -> tuple[StoredFile, ...]:
        self._check()
        known = (file for file, _ in self._files.values())
        return tuple(sorted(known, key=lambda file: (file.created_at_s, file.file_id)))

    def open(self, file_id: str) -> BinaryIO:
        self._check()
        if file_id not in self._files:
            raise Invalid(f'no file is called "{file_id:.80}"')
        return io.BytesIO(self._files[file_id][1])

    def delete(self, file_id: str) -> bool:
        self._check()
        return self._files.pop(file_id, None) is not None


class MemoryResultLog(Faulty):
    """``ResultLog`` in memory."""

    def __init__(self) -> None:
        self._segments: dict[str, list[MemoryResultSegment]] = {}

    def begin(self, batch_id: str) -> MemoryResultSegment:
        self._check()
        segment = MemoryResultSegment(self)
        self._segments.setdefault(batch_id, []).append(segment)
        return segment

    def records(self, batch_id: str) -> Iterator[tuple[int, bytes]]:
        self._check()
        for segment in self._segments.get(batch_id, []):
            yield from segment.kept

    def remove(self, batch_id: str) -> None:
        self._check()
        self._segments.pop(batch_id, None)

    def check(self) -> None:
        """Raise the fault that is set."""
        self._check()


class MemoryResultSegment:
    """``ResultSegment`` in memory."""

    def __init__(self, log: MemoryResultLog) -> None:
        self._log = log
        self.kept: list[tuple[int, bytes]] = []

    def append(self, line: int, record: bytes) -> None:
        self._log.check()
        if b"\n" in record:
            raise Invalid("a record is one line")
        self.kept.append((line, record))

    def close(self) -> None:
        """Nothing is open."""


class MemoryBatchStore(Faulty):
    """``BatchStore`` in memory. What is taken stays so until it is let go."""

    def __init__(self) -> None:
        self._batches: dict[str, Batch] = {}
        self._taken: dict[str, str] = {}

    async def add(self, batch: Batch) -> None:
        self._check()
        self._batches[batch.batch_id] = batch

    async def get(self, batch_id: str) -> Batch | None:
        self._check()
        return self._batches.get(batch_id)

    async def replace(self, batch: Batch) -> Batch | None:
        self._check()
        stored = self._batches.get(batch.batch_id)
        if stored is None or stored.revision != batch.revision:
            return None
        changed = replace(batch, revision=batch.revision + 1)
        self._batches[batch.batch_id] = changed
        return changed

    async def list(self) -> tuple[Batch, ...]:
        self._check()
        known = self._batches.values()
        return tuple(sorted(known, key=lambda b: (b.created_at_s, b.batch_id), reverse=True))

    async def remove(self, batch_id: str) -> None:
        self._check()
        self._batches.pop(batch_id, None)

    async def take(self, batch_id: str, owner: str, *, hold_s: float) -> bool:  # noqa: ARG002
        self._check()
        return self._taken.setdefault(batch_id, owner) == owner

    async def is_taken(self, batch_id: str) -> bool:
        self._check()
        return batch_id in self._taken

    async def let_go(self, batch_id: str, owner: str) -> None:
        self._check()
        if self._taken.get(batch_id) == owner:
            del self._taken[batch_id]
