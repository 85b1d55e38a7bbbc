"""An advisory lock on a file that the kernel lets go of when its last holder is gone."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


class FileLock:
    """``flock`` on ``path``. A child that inherits ``fd`` holds it as well."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._fd: int | None = None

    @property
    def fd(self) -> int:
        """The held descriptor."""
        if self._fd is None:
            raise RuntimeError(f"{self._path} is not locked")
        return self._fd

    @property
    def held(self) -> bool:
        """Whether this object holds the lock."""
        return self._fd is not None

    def take(self) -> bool:
        """Whether the lock is ours now; never waits."""
        if self._fd is not None:
            return True
        fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return False
        self._fd = fd
        return True

    def release(self) -> None:
        """Let go of it; nothing happens where it is not held."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
