"""The way to files of weights, and to the page cache that they may be in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from contracts.world import HostMemory


@dataclass(frozen=True, slots=True, kw_only=True)
class FileWarmth:
    """Some files together; ``cached_bytes`` is None where we may not see what is cached."""

    size_bytes: int
    cached_bytes: int | None


class WeightCache(Protocol):
    """LocalAI's models folder on the machine that runs a node, and that machine's page cache.

    Files are named below the folder. One that is not there, or leads out of it, counts as none.
    """

    async def look(self, files: tuple[str, ...]) -> FileWarmth | None:
        """How large they are and what of them is cached; None: none of them is there."""
        ...

    async def warm(
        self, files: tuple[str, ...], *, bytes_per_s: float, go_on: Callable[[], bool]
    ) -> int:
        """Read them ahead, at most that fast (in real seconds), while ``go_on`` says so.

        Returns the bytes that were read. Raises Transient when a file cannot be read.
        """
        ...

    async def drop(self, files: tuple[str, ...]) -> None:
        """They need not be cached any more."""
        ...

    async def host(self) -> HostMemory | None:
        """Memory of the machine; None: not told."""
        ...
