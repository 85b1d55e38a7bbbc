"""Files and results of batches on a disk that the control API and the workers share.

Nothing is half there: a file is written beside its place and moved there once it is whole and
on the disk, its record last. What a killed process left half written is removed at the start.
"""
# ruff: noqa: D102 - the ports say what each method does

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

import msgspec

from adapters.stored_records import STALE_REAL_S, copy_all, is_file_name, record_in
from adapters.whole_file import whole_file
from contracts.batches import StoredFile
from contracts.errors import Invalid, Transient

FILES_FOLDER = "files"
RESULTS_FOLDER = "batch-results"
"""Under ``data_dir``."""


class DiskFileStore:
    """``FileStore`` in one folder: ``<id>.json`` says what ``<id>.data`` is.

    Parameters
    ----------
    folder : Path
        Made where it is missing; only its owner may look into it.
    max_bytes : int
        All files together; beyond it none is taken.
    """

    def __init__(self, folder: Path, *, max_bytes: int) -> None:
        self._folder = _made(folder)
        self._max_bytes = max_bytes

    def add(self, file: StoredFile, source: BinaryIO) -> StoredFile:
        record, content = self._paths(file.file_id)
        with _disk("store a file"):
            room = self._max_bytes - sum(known.size_bytes for known in self.list())
            _remove_stale(self._folder)
            with whole_file(content) as target:
                size = copy_all(source, target, at_most=room)
            kept = replace(file, size_bytes=size)
            with whole_file(record) as target:
                target.write(msgspec.json.encode(kept))
        return kept

    def get(self, file_id: str) -> StoredFile | None:
        if not is_file_name(file_id):
            return None
        with _disk("read a file"):
            return self._read(self._folder / f"{file_id}.json")

    def list(self) -> tuple[StoredFile, ...]:
        with _disk("list files"):
            found = [self._read(path) for path in self._folder.glob("*.json")]
        known = [file for file in found if file is not None]
        return tuple(sorted(known, key=lambda file: (file.created_at_s, file.file_id)))

    def open(self, file_id: str) -> BinaryIO:
        if self.get(file_id) is None:
            raise Invalid(f'no file is called "{file_id:.80}"')
        with _disk("open a file"):
            return (self._folder / f"{file_id}.data").open("rb")

    def delete(self, file_id: str) -> bool:
        if self.get(file_id) is None:
            return False
        record, content = self._paths(file_id)
        with _disk("delete a file"):
            record.unlink(missing_ok=True)
            content.unlink(missing_ok=True)
        return True

    def _paths(self, file_id: str) -> tuple[Path, Path]:
        if not is_file_name(file_id):
            raise Invalid(f'"{file_id:.80}" is no name for a file')
        return self._folder / f"{file_id}.json", self._folder / f"{file_id}.data"

    def _read(self, path: Path) -> StoredFile | None:
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        return record_in(content, path=path.name)


class DiskResultLog:
    """``ResultLog``: one folder for each batch, one file for each run.

    A record is one line, ``<number> <record>``, written in one call: a process that is killed
    leaves at most a last line without its end, which is not read.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = _made(folder)

    def begin(self, batch_id: str) -> DiskResultSegment:
        with _disk("begin results"):
            folder = _made(self._of(batch_id))
            # The name only has to sort behind those that are there.
            number = 1 + max((int(path.name.split("-")[0]) for path in folder.iterdir()), default=0)
            return DiskResultSegment(folder / f"{number:08}-{secrets.token_hex(4)}")

    def records(self, batch_id: str) -> Iterator[tuple[int, bytes]]:
        folder = self._of(batch_id)
        with _disk("read results"):
            segments = sorted(folder.iterdir()) if folder.is_dir() else []
            for segment in segments:
                with segment.open("rb") as lines:
                    for line in lines:
                        number, _, record = line.partition(b" ")
                        if line.endswith(b"\n") and number.isdigit():
                            yield int(number), record[:-1]

    def remove(self, batch_id: str) -> None:
        with _disk("remove results"), suppress(FileNotFoundError):
            shutil.rmtree(self._of(batch_id))

    def _of(self, batch_id: str) -> Path:
        if not is_file_name(batch_id):
            raise Invalid(f'"{batch_id:.80}" is no batch')
        return self._folder / batch_id


class DiskResultSegment:
    """``ResultSegment``: what the kernel has taken survives the process."""

    def __init__(self, path: Path) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
        self._descriptor = os.open(path, flags, 0o600)

    def append(self, line: int, record: bytes) -> None:
        if b"\n" in record:
            raise Invalid("a record is one line")
        data = b"%d %s\n" % (line, record)
        with _disk("write a result"):
            written = os.write(self._descriptor, data)
            if written < len(data):
                # What is half there must not swallow the next one.
                os.write(self._descriptor, b"\n")
                raise Transient("the disk is full: a result was not written")

    def close(self) -> None:
        os.close(self._descriptor)


def _made(folder: Path) -> Path:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise Invalid(f"{folder} cannot be used for files: {error.strerror}") from error
    return folder


@contextmanager
def _disk(what: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Transient(f"cannot {what}: {error.strerror or error}") from error


def _remove_stale(folder: Path) -> None:
    """What a killed process left behind, once it can be nobody's any more."""
    newest_s = max((path.stat().st_mtime for path in folder.iterdir()), default=0.0)
    for path in folder.glob(".*"):
        if path.stat().st_mtime < newest_s - STALE_REAL_S:
            path.unlink(missing_ok=True)
