"""What predictors have learned, as a signed file in the data folder."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

import asyncio
import gzip
import hashlib
import hmac
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from adapters.whole_file import private
from contracts.errors import Invalid, Permanent
from contracts.insights import ChampionStore

T = TypeVar("T")

FOLDER = "predictor"
_FILE = "learned.snapshot"
_MAGIC = b"headstart-learned 1\n"
_SIGNATURE_HEX = 64
_BODY_AT = len(_MAGIC) + _SIGNATURE_HEX + 1
_CHUNK_BYTES = 1024**2
_LEAVINGS_AGE_S = 600.0


class DiskEngineSnapshots:
    """``EngineSnapshots`` under a data folder, signed with the folder's key.

    It is written uncompressed first, since that is fast and the caller stands still for it; a
    thread then packs and signs it, and puts it in the place of the one before by a rename.

    Parameters
    ----------
    keys : ChampionStore
        Who has the folder's key.
    every_s : float
        Real seconds; one that is younger than half of this is left, as another has written it.
    """

    def __init__(self, data_dir: Path, keys: ChampionStore, *, every_s: float) -> None:
        self._folder = data_dir / FOLDER
        self._path = self._folder / _FILE
        self._keys = keys
        self._every_s = every_s

    async def read(self, load: Callable[[BinaryIO], T]) -> T | None:
        if not await asyncio.to_thread(self._path.exists):
            return None
        key = await self._keys.key()
        return await asyncio.to_thread(self._read, load, key)

    async def write(self, dump: Callable[[BinaryIO], None]) -> bool:
        key = await self._keys.key()
        if not await asyncio.to_thread(self._is_due):
            return False
        raw = self._beside("raw")
        try:
            self._dump(raw, dump)
            await asyncio.to_thread(self._pack, raw, key)
        except OSError as error:
            raise Permanent(f"{self._path}: {error.strerror}") from error
        finally:
            raw.unlink(missing_ok=True)
        return True

    def _dump(self, raw: Path, dump: Callable[[BinaryIO], None]) -> None:
        """In one go, so that what is written does not change meanwhile."""
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(raw, "wb", opener=private) as file:
            dump(file)

    def _read(self, load: Callable[[BinaryIO], T], key: bytes) -> T:
        try:
            with self._path.open("rb") as file:
                head = file.read(_BODY_AT)
                signed = head[len(_MAGIC) : -1]
                if not head.startswith(_MAGIC) or not hmac.compare_digest(
                    signed, _signature(file, key)
                ):
                    raise Invalid(f"{self._path}: is not signed with the key here")
                file.seek(_BODY_AT)
                with gzip.open(file, "rb") as body:
                    return load(body)  # type: ignore[arg-type]  # it reads as a BinaryIO does
        except (OSError, EOFError) as error:
            raise Permanent(f"{self._path}: {error}") from error

    def _pack(self, raw: Path, key: bytes) -> None:
        packed = self._beside("new")
        with open(packed, "wb+", opener=private) as file:
            file.write(b"\0" * _BODY_AT)
            with raw.open("rb") as plain, gzip.open(file, "wb", compresslevel=1) as body:
                shutil.copyfileobj(plain, body, _CHUNK_BYTES)
            file.seek(_BODY_AT)
            signature = _signature(file, key)
            file.seek(0)
            file.write(_MAGIC + signature + b"\n")
            file.flush()
            os.fsync(file.fileno())
        packed.replace(self._path)
        self._sweep()

    def _is_due(self) -> bool:
        try:
            age_s = time.time() - self._path.stat().st_mtime
        except OSError:
            return True
        return not 0.0 <= age_s < self._every_s / 2

    def _sweep(self) -> None:
        """Remove what writers left that died; one that lives has written it just now."""
        for left in (*self._folder.glob("*.raw"), *self._folder.glob("*.new")):
            try:
                if time.time() - left.stat().st_mtime > _LEAVINGS_AGE_S:
                    left.unlink()
            except FileNotFoundError:
                continue

    def _beside(self, suffix: str) -> Path:
        return self._folder / f"{_FILE}.{os.getpid()}.{suffix}"


def _signature(file: BinaryIO, key: bytes) -> bytes:
    """Of what is left of ``file``."""
    digest = hmac.new(key, _MAGIC, hashlib.sha256)
    while chunk := file.read(_CHUNK_BYTES):
        digest.update(chunk)
    return digest.hexdigest().encode()
