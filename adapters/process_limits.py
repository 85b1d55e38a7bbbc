"""What every process of ours does first: nothing of its memory or its files is for others."""

from __future__ import annotations

import os
import resource
import sys
from contextlib import suppress

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
