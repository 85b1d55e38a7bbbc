"""The format of what is kept: a number beside the data, and what follows from another one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

FORMAT = 1
"""What this release writes. It goes up when older data has to be changed to be read."""

FORMAT_FILE = "format"
"""In ``data_dir``; in Redis it is ``redis_keys.FORMAT``."""

BEFORE_MARKS = 1
"""The format of data that has no mark: releases before there were marks wrote it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFormat:
    """The mark beside the data.

    Attributes
    ----------
    number : int
    written_by : str
        The release that wrote it, for people; "" where it does not say.
    """

    number: int
    written_by: str = ""


StoredContent = (
    bytes
    | Mapping[bytes, bytes]
    | frozenset[bytes]
    | tuple[bytes, ...]
    | tuple[tuple[bytes, float], ...]
    | tuple[tuple[str, Mapping[bytes, bytes]], ...]
)
"""Of a string, a hash, a set, a list, a sorted set, a stream."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """One key of Redis with all that is in it.

    Attributes
    ----------
    kind : str
        ``string``, ``hash``, ``set``, ``list``, ``zset`` or ``stream``.
    expires_in_ms : int or None
        None: it stays.
    """

    key: str
    kind: str
    content: StoredContent
    expires_in_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyMigration:
    """How keys of one format become those of the next.

    Attributes
    ----------
    pattern : str
        Of the keys that it is asked about, as Redis matches them.
    change : callable
        Pure. It leaves what is changed already as it is, since a run that was killed is begun
        anew; None: the key goes.
    """

    pattern: str
    change: Callable[[Stored], Stored | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FileMigration:
    """The same for files of ``data_dir``, by a pattern of their path in it."""

    pattern: str
    change: Callable[[bytes], bytes | None]


KEY_MIGRATIONS: Mapping[int, tuple[KeyMigration, ...]] = {}
"""From each format to the next one; a number that is not here changes nothing."""

FILE_MIGRATIONS: Mapping[int, tuple[FileMigration, ...]] = {}


def write_mark(mark: DataFormat) -> bytes:
    """The mark as it is kept."""
    return json.dumps({"format": mark.number, "written_by": mark.written_by}).encode()


def read_mark(text: bytes | None) -> DataFormat | None:
    """The mark in ``text``; without one ``BEFORE_MARKS``, and None where it is none."""
    if text is None:
        return DataFormat(number=BEFORE_MARKS)
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    number = told.get("format") if isinstance(told, dict) else None
    if type(number) is not int or number < 1:
        return None
    return DataFormat(number=number, written_by=str(told.get("written_by", ""))[:40])


def refusal(
    mark: DataFormat | None, *, place: str, release: str, known: int = FORMAT
) -> str | None:
    """Why data with this mark is not touched, in one line; None: it can be used."""
    this = f"this is headstart {release}, which reads up to format {known}"
    if mark is None:
        return f"{place} has a mark of its format that cannot be read; {this}"
    if mark.number <= known:
        return None
    writer = f"headstart {mark.written_by}" if mark.written_by else "a newer release"
    return (
        f"{place} has data of format {mark.number}, written by {writer}; {this}: "
        "start that release again, or give this one empty data or those of a backup from before"
    )


def steps(number: int, known: int = FORMAT) -> range:
    """The formats that are left behind, one after the other, on the way to ``known``."""
    return range(number, known)
