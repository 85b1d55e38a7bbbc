"""Whose a process is: LocalAI's, or another program's.

Numbers of processes mean something only in the machine's own process table. In a container
another process may have the number that the driver tells, so nothing is said there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from adapters.probes.files import names_in, text_of

LOCALAI_NAMES = ("local-ai", "localai")
"""What LocalAI's own process is called; its backends are its children."""

INITIAL_NAMESPACE = "pid:[4026531836]"
"""The machine's own process table, which the kernel always gives this number."""

MAX_ANCESTORS = 64
FIND_EVERY = 6
"""Looks between two searches for LocalAI while it is not found: they go over all processes."""


class Owners:
    """Tells LocalAI's processes from others.

    Parameters
    ----------
    proc : Path
        Where the process table is.
    names : tuple of str
        What LocalAI's process is called.
    """

    def __init__(self, proc: Path = Path("/proc"), names: tuple[str, ...] = LOCALAI_NAMES) -> None:
        self._proc = proc
        self._names = frozenset(names)
        self._roots: frozenset[int] = frozenset()
        self._looks = 0

    def owned(self, pids: Iterable[int]) -> frozenset[int] | None:
        """Those of ``pids`` that are LocalAI's. None: it is not to be told here.

        That is so in a container's own process table, and where LocalAI is not to be seen: it
        is elsewhere then, or hidden, and what it holds must not be taken for others'.
        """
        if not self.roots():
            return None
        return frozenset(pid for pid in pids if self._is_owned(pid))

    def roots(self) -> frozenset[int]:
        """LocalAI's own processes; none where the process table is not the machine's."""
        if self._namespace() != INITIAL_NAMESPACE:
            return frozenset()
        alive = frozenset(pid for pid in self._roots if self._is_root(pid))
        if not alive or alive != self._roots:
            if self._looks % FIND_EVERY == 0:
                pids = (int(name) for name in names_in(self._proc) if name.isdecimal())
                alive = frozenset(pid for pid in pids if self._is_root(pid))
            self._looks += 1
        else:
            self._looks = 0
        self._roots = alive
        return alive

    def environment(self, name: str) -> str | None:
        """What a variable was when LocalAI was started; None: not set, or not to be read."""
        for pid in sorted(self.roots()):
            for entry in (text_of(self._proc / str(pid) / "environ") or "").split("\0"):
                key, found, value = entry.partition("=")
                if found and key == name:
                    return value
        return None

    def _namespace(self) -> str:
        try:
            return str((self._proc / "self" / "ns" / "pid").readlink())
        except OSError:
            return ""

    def _is_root(self, pid: int) -> bool:
        return text_of(self._proc / str(pid) / "comm") in self._names

    def _is_owned(self, pid: int) -> bool:
        for _ in range(MAX_ANCESTORS):
            if pid in self._roots:
                return True
            parent = self._parent(pid)
            if parent is None or parent <= 1:
                return parent in self._roots
            pid = parent
        return False

    def _parent(self, pid: int) -> int | None:
        # The name stands in brackets and may itself hold spaces and brackets.
        fields = (text_of(self._proc / str(pid) / "stat") or "").rpartition(")")[2].split()
        return int(fields[1]) if len(fields) > 1 and fields[1].isdecimal() else None
