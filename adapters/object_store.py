"""Files of batches in an object store: S3 and what speaks like it, or any other that fsspec knows.

An object is written whole or not at all, and there is no moving one: the content comes first, its
record last, so that what has no record was never there. What a killed process left without one
goes a day later.
"""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, BinaryIO, cast

import fsspec
import msgspec

from adapters.stored_records import STALE_REAL_S, copy_all, is_file_name, record_in
from contracts.batches import StoredFile
from contracts.errors import HeadstartError, Invalid, Transient

_IN_MEMORY_BYTES = 8 * 1024**2


class ObjectFileStore:
    """``FileStore`` under one address, such as ``s3://bucket/headstart``.

    Parameters
    ----------
    url : str
        Where objects go; the store's own variables hold its keys (``AWS_ACCESS_KEY_ID``,
        ``AWS_SECRET_ACCESS_KEY``, ``AWS_ENDPOINT_URL`` for others than Amazon's).
    max_bytes : int
        All files together; beyond it none is taken.

    Raises
    ------
    Invalid
        The kind of store is not known, or the package that speaks to it is not installed.
    """

    def __init__(self, url: str, *, max_bytes: int) -> None:
        if "://" not in url:
            raise Invalid(f'workers.files_url = {url!r}: an address such as "s3://bucket/folder"')
        try:
            self._store: Any = fsspec.url_to_fs(url)[0]
            self._root = str(fsspec.url_to_fs(url)[1]).rstrip("/")
        except (ValueError, ImportError) as error:
            raise Invalid(f"workers.files_url = {url!r}: {error}") from error
        self._max_bytes = max_bytes

    def add(self, file: StoredFile, source: BinaryIO) -> StoredFile:
        record, content = self._paths(file.file_id)
        with _store("store a file"):
            names = self._names()
            self._remove_stale(names)
            room = self._max_bytes - sum(known.size_bytes for known in self._read_all(names))
            with tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES) as spool:
                size = copy_all(source, cast("BinaryIO", spool), at_most=room)
                spool.seek(0)
                with self._store.open(content, "wb") as target:
                    copy_all(cast("BinaryIO", spool), target, at_most=size)
            kept = replace(file, size_bytes=size)
            self._store.pipe_file(record, msgspec.json.encode(kept))
        return kept

    def get(self, file_id: str) -> StoredFile | None:
        if not is_file_name(file_id):
            return None
        with _store("read a file"):
            try:
                found = self._store.cat_file(self._paths(file_id)[0])
            except FileNotFoundError:
                return None
        return record_in(found, path=file_id)

    def list(self) -> tuple[StoredFile, ...]:
        with _store("list files"):
            known = list(self._read_all(self._names()))
        return tuple(sorted(known, key=lambda file: (file.created_at_s, file.file_id)))

    def open(self, file_id: str) -> BinaryIO:
        if self.get(file_id) is None:
            raise Invalid(f'no file is called "{file_id:.80}"')
        # Read to a place of our own: who reads for an hour must not meet a store that hangs up.
        copy = tempfile.SpooledTemporaryFile(_IN_MEMORY_BYTES)  # noqa: SIM115 - the caller's
        with _store("open a file"), self._store.open(self._paths(file_id)[1], "rb") as source:
            copy_all(source, cast("BinaryIO", copy))
        copy.seek(0)
        return cast("BinaryIO", copy)

    def delete(self, file_id: str) -> bool:
        if self.get(file_id) is None:
            return False
        with _store("delete a file"):
            for path in self._paths(file_id):
                with suppress(FileNotFoundError):
                    self._store.rm_file(path)
        return True

    def _remove_stale(self, names: set[str]) -> None:
        """Contents without a record that nobody can be writing any more."""
        for name in names:
            if not name.endswith(".data") or f"{name.removesuffix('.data')}.json" in names:
                continue
            if self._store.modified(name).timestamp() < time.time() - STALE_REAL_S:
                self._store.rm_file(name)

    def _names(self) -> set[str]:
        try:
            return {str(name) for name in self._store.ls(self._root, detail=False, refresh=True)}
        except FileNotFoundError:
            return set()

    def _read_all(self, names: set[str]) -> Iterator[StoredFile]:
        records = [name for name in names if name.endswith(".json")]
        found = self._store.cat(records, on_error="omit") if records else {}
        for name, content in found.items():
            file = record_in(content, path=name)
            if file is not None:
                yield file

    def _paths(self, file_id: str) -> tuple[str, str]:
        if not is_file_name(file_id):
            raise Invalid(f'"{file_id:.80}" is no name for a file')
        return f"{self._root}/{file_id}.json", f"{self._root}/{file_id}.data"


@contextmanager
def _store(what: str) -> Iterator[None]:
    try:
        yield
    except HeadstartError:
        raise
    except Exception as error:
        # Each kind of store has errors of its own, and all of them mean that it was not done.
        raise Transient(f"cannot {what}: {error!s:.300}") from error
