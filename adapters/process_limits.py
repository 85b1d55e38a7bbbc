"""What every process of ours does first: nothing of its memory or its files is for others."""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from contextlib import suppress

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
"""Of glibc's ``malloc.h``."""
_LARGE_BYTES = 128 * 1024
"""Where glibc begins, before it has seen a larger block freed."""
_NO_CORE_BYTES = 1
"""Linux hands a core to a program even at 0; at 1 it makes none, of neither kind."""


def harden() -> None:
    """No core files, which would hold prompts and keys, and new files for this user alone.

    Children inherit both.
    """
    without_core_files()
    os.umask(0o077)


def without_core_files() -> None:
    """A crash writes no memory to a disk."""
    limit = _NO_CORE_BYTES if sys.platform == "linux" else 0
    with suppress(ValueError, OSError):
        # Who had 0 as the bound may not set 1, and needs it less.
        resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))
        return
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def give_back_large_blocks() -> None:
    """Blocks from 128 KiB on go back to the system when they are freed, also after weeks.

    glibc takes larger and larger ones from its heap, up to the largest that was ever freed
    (mallopt(3)). Between small ones that stay they leave holes that the next one does not fit,
    and the heap grows by what nobody uses: two megabytes a day in a controller, whose snapshots
    are such blocks. Other C libraries do not have the switch.
    """
    with suppress(AttributeError, OSError):
        libc = ctypes.CDLL(None)
        libc.mallopt(_M_MMAP_THRESHOLD, _LARGE_BYTES)
        libc.mallopt(_M_TRIM_THRESHOLD, _LARGE_BYTES)
