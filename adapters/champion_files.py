"""The challenger's snapshot as a file in the data folder, and the key that signs it beside it."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import asyncio
import os
import secrets
from pathlib import Path

from contracts.errors import Invalid, Permanent

CHAMPION_FOLDER = "champion"
KEY_FILE = "snapshot.key"
_SNAPSHOT = "champion.snapshot"
_KEY_BYTES = 32
MAX_SNAPSHOT_BYTES = 64 * 1024**2


class DiskChampionStore:
    """``ChampionStore`` under a data folder.

    A snapshot is written beside the old one, synced, and takes its place by a rename, so that a
    death at any moment leaves one or the other. The key is readable by its owner alone.
    """

    def __init__(self, data_dir: Path) -> None:
        self._folder = data_dir / CHAMPION_FOLDER
        self._key = data_dir / KEY_FILE

    async def get(self) -> bytes | None:
        return await asyncio.to_thread(self._read)

    async def put(self, snapshot: bytes) -> None:
        if len(snapshot) > MAX_SNAPSHOT_BYTES:
            raise Invalid(f"a snapshot has {len(snapshot)} bytes, at most {MAX_SNAPSHOT_BYTES}")
        await asyncio.to_thread(self._write, snapshot)

    async def key(self) -> bytes:
        return await asyncio.to_thread(self._read_key)

    def _read(self) -> bytes | None:
        path = self._folder / _SNAPSHOT
        try:
            if path.stat().st_size > MAX_SNAPSHOT_BYTES:
                raise Permanent(f"{path}: is larger than a snapshot can be")
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise Permanent(f"{path}: {error.strerror}") from error

    def _write(self, snapshot: bytes) -> None:
        path = self._folder / _SNAPSHOT
        # The name is the process's own: two that write at once do not write into one file.
        beside = path.with_name(f"{_SNAPSHOT}.{os.getpid()}.new")
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _write_synced(beside, snapshot)
            beside.replace(path)
            self._sweep()
        except OSError as error:
            raise Permanent(f"{path}: {error.strerror}") from error

    def _sweep(self) -> None:
        """Remove what writers left that died."""
        for left in self._folder.glob(f"{_SNAPSHOT}.*.new"):
            left.unlink(missing_ok=True)

    def _read_key(self) -> bytes:
        try:
            return self._known_key() or self._made_key()
        except OSError as error:
            raise Permanent(f"{self._key}: {error.strerror}") from error

    def _known_key(self) -> bytes | None:
        try:
            key = self._key.read_bytes()
        except FileNotFoundError:
            return None
        if len(key) != _KEY_BYTES:
            raise Permanent(
                f"{self._key}: is no key of {_KEY_BYTES} bytes; remove it, and a new one is made"
            )
        return key

    def _made_key(self) -> bytes:
        """A key of our own, or that of whoever was quicker."""
        self._key.parent.mkdir(parents=True, exist_ok=True)
        beside = self._key.with_name(f"{KEY_FILE}.{os.getpid()}.new")
        _write_synced(beside, secrets.token_bytes(_KEY_BYTES))
        try:
            os.link(beside, self._key)
        except FileExistsError:
            pass
        finally:
            beside.unlink()
        key = self._known_key()
        assert key is not None
        return key


def _write_synced(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
