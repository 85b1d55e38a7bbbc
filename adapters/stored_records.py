"""What the stores of files have in common, wherever they keep them: names, records, copying."""

from __future__ import annotations

import re
from typing import BinaryIO

import msgspec
import structlog

from contracts.batches import StoredFile
from contracts.errors import Transient

STALE_REAL_S = 24 * 3600.0
"""What a killed process left behind is nobody's any more after so long."""

_log = structlog.get_logger(__name__)
_NAME = re.compile(r"[A-Za-z0-9_-]{1,200}")
_COPY_BYTES = 1024**2
_DECODER = msgspec.json.Decoder(StoredFile)


def is_file_name(text: str) -> bool:
    """Whether it may name a file: nothing that leads elsewhere."""
    return _NAME.fullmatch(text) is not None


def record_in(content: bytes, *, path: str) -> StoredFile | None:
    """The record of a file; None, with a line, where it cannot be read: it hides no other."""
    try:
        return _DECODER.decode(content)
    except msgspec.MsgspecError as error:
        _log.warning("file_unreadable", path=path, error=str(error))
        return None


def copy_all(source: BinaryIO, target: BinaryIO, *, at_most: int | None = None) -> int:
    """Copy from here to the end; how many bytes. Raises Transient past ``at_most``."""
    size = 0
    while piece := source.read(_COPY_BYTES):
        size += len(piece)
        if at_most is not None and size > at_most:
            raise Transient("there is no room left for files; delete some, or raise the limit")
        target.write(piece)
    return size
