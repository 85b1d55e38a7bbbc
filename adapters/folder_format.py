"""The format of what is in ``data_dir``: a file beside the data, looked at before any is used."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import structlog

from adapters.file_lock import FileLock
from adapters.release import installed_release
from adapters.whole_file import whole_file
from contracts.data_format import (
    FILE_MIGRATIONS,
    FORMAT,
    FORMAT_FILE,
    DataFormat,
    FileMigration,
    read_mark,
    refusal,
    steps,
    write_mark,
)
from contracts.errors import Invalid

FORMAT_LOCK_FILE = f"{FORMAT_FILE}.lock"
_POLL_REAL_S = 0.1
_PATIENCE_REAL_S = 300.0
_MAX_MARK_BYTES = 4_096

_log = structlog.get_logger("headstart.data")


def settle_folder(
    folder: Path,
    *,
    known: int = FORMAT,
    migrations: Mapping[int, Sequence[FileMigration]] = FILE_MIGRATIONS,
) -> None:
    """Make the folder, for this user alone, or refuse, bring up and mark the one that is there.

    A folder that cannot be written is told by whoever has to write into it, not here.

    Raises
    ------
    Invalid
        It has data of a newer release, and nothing in it was touched.
    """
    if _is_settled(folder, known):
        return
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = FileLock(folder / FORMAT_LOCK_FILE)
        _wait_for(lock)
    except OSError as error:
        _log.debug("data_format_not_written", place=str(folder), error=error.strerror)
        return
    try:
        if not _is_settled(folder, known):
            _bring_up(folder, known, migrations)
    except OSError as error:
        raise Invalid(f"{folder}: cannot be brought to format {known}: {error.strerror}") from error
    finally:
        lock.release()


def _wait_for(lock: FileLock) -> None:
    until_s = time.monotonic() + _PATIENCE_REAL_S
    while not lock.take():
        if time.monotonic() > until_s:
            raise OSError(None, "another process does not get on with it")
        time.sleep(_POLL_REAL_S)


def _is_settled(folder: Path, known: int) -> bool:
    """Whether nothing is to be done. Raises Invalid where the data is not for this release."""
    text = _text_of_mark(folder)
    mark = read_mark(text)
    why = refusal(mark, place=str(folder), release=installed_release(), known=known)
    if why is not None:
        raise Invalid(why)
    return text is not None and mark is not None and mark.number == known


def _text_of_mark(folder: Path) -> bytes | None:
    try:
        with (folder / FORMAT_FILE).open("rb") as file:
            return file.read(_MAX_MARK_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Invalid(f"{folder / FORMAT_FILE}: {error.strerror}") from error


def _bring_up(folder: Path, known: int, migrations: Mapping[int, Sequence[FileMigration]]) -> None:
    mark = read_mark(_text_of_mark(folder))
    for number in steps(known if mark is None else mark.number, known):
        changed = sum(_migrate(folder, each) for each in migrations.get(number, ()))
        _put(folder / FORMAT_FILE, _mark(number + 1))
        _log.info("data_brought_up", place=str(folder), to_format=number + 1, changed=changed)
    _put(folder / FORMAT_FILE, _mark(known))


def _migrate(folder: Path, migration: FileMigration) -> int:
    changed = 0
    for path in sorted(folder.glob(migration.pattern)):
        if path.is_symlink() or not path.is_file():
            continue
        before = path.read_bytes()
        after = migration.change(before)
        if after == before:
            continue
        if after is None:
            path.unlink()
        else:
            _put(path, after)
        changed += 1
    return changed


def _put(path: Path, content: bytes) -> None:
    """In one step, so that a death leaves the old one or the new one."""
    with whole_file(path) as file:
        file.write(content)


def _mark(number: int) -> bytes:
    return write_mark(DataFormat(number=number, written_by=installed_release()))
