"""Child processes that never outlive the process that started them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def follows_parent(death_signal: signal.Signals = signal.SIGTERM) -> Callable[[], None]:
    """What to run in a child between fork and exec, so that it is told when we are gone.

    On Linux the kernel sends ``death_signal`` when the thread that started the child ends,
    however it ends; elsewhere a child of a killed parent has to notice by itself.
    """
    parent_pid = os.getpid()

    def prepare() -> None:
        if _LIBC is not None:
            _LIBC.prctl(_PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
            if os.getppid() != parent_pid:
                os._exit(1)

    return prepare
