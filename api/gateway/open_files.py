"""How many files the process may have open, and how many connections that is."""

from __future__ import annotations

import sys

_WANTED_FILES = 65_536
_OTHER_FILES = 200
"""Pools to LocalAI, Redis, spooled bodies, libraries."""


def raise_limit() -> int:
    """Ask for as many open files as this user may have; returns how many there are now."""
    if sys.platform == "win32":
        return _WANTED_FILES
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _WANTED_FILES if soft == resource.RLIM_INFINITY else soft
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return wanted


def connections_within(files: int, wanted: int) -> int:
    """As many callers as can be served with so many files: each may need one to LocalAI too."""
    return max(1, min(wanted, (files - _OTHER_FILES) // 2))
