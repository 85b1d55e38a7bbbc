"""Tells a closed terminal from a request to read the configuration: both are SIGHUP."""

from __future__ import annotations

import contextlib
import os


class Terminal:
    """The terminal that a process was started at, if any.

    When it is closed, the kernel takes it away before it sends the signal.
    """

    def __init__(self, descriptors: tuple[int, ...] = (0, 1, 2)) -> None:
        self._there = tuple(number for number in descriptors if _is_terminal(number))

    def is_gone(self) -> bool:
        """Whether there was one and there is none any more."""
        return bool(self._there) and not any(_is_terminal(number) for number in self._there)


def _is_terminal(descriptor: int) -> bool:
    with contextlib.suppress(OSError):
        return os.isatty(descriptor)
    return False
