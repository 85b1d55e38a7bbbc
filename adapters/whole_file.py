"""Files that are there whole or not at all, and are for their user alone."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: Path) -> Iterator[BinaryIO]:
    """A file that comes to its place once all of it is on the disk, or not at all.

    It is written beside its place, under a hidden name of its own, which a process that is
    killed leaves behind. Raises OSError.
    """
    beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(beside, "xb", opener=private) as target:
            yield target
            target.flush()
            os.fsync(target.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def private(path: str, flags: int) -> int:
    """``opener`` of ``open``: a file that is made is for this user alone."""
    return os.open(path, flags, 0o600)
