"""A models folder and its page cache in memory: implements ``contracts.ports.WeightCache``."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from contracts.errors import HeadstartError
from contracts.ports import Clock, FileWarmth
from contracts.world import HostMemory

PIECE_BYTES = 8 * 1024**2


class MemoryWeightCache:
    """Files are sizes by name; what is cached of each is counted.

    Parameters
    ----------
    files : mapping
        Bytes by name below the folder.
    is_seen : bool
        Whether what is cached may be seen; else it is cached all the same.
    fault : HeadstartError, optional
        What every read raises, as a broken disk would.
    """

    def __init__(
        self,
        clock: Clock,
        files: Mapping[str, int] | None = None,
        *,
        memory: HostMemory | None = None,
        is_seen: bool = True,
    ) -> None:
        self._clock = clock
        self.sizes = dict(files or {})
        self.cached = dict.fromkeys(self.sizes, 0)
        self.memory = memory
        self.is_seen = is_seen
        self.fault: HeadstartError | None = None

    async def look(self, files: tuple[str, ...]) -> FileWarmth | None:
        """As the port says."""
        there = self._there(files)
        if not there:
            return None
        cached = sum(self.cached[name] for name in there) if self.is_seen else None
        return FileWarmth(size_bytes=sum(self.sizes[n] for n in there), cached_bytes=cached)

    async def warm(
        self, files: tuple[str, ...], *, bytes_per_s: float, go_on: Callable[[], bool]
    ) -> int:
        """As the port says; a piece takes its time on the given clock."""
        done = 0
        for name in self._there(files):
            offset = 0
            while offset < self.sizes[name] and go_on():
                if self.fault is not None:
                    raise self.fault
                piece = min(PIECE_BYTES, self.sizes[name] - offset)
                offset += piece
                done += piece
                self.cached[name] = max(self.cached[name], offset)
                await self._clock.sleep(piece / bytes_per_s)
        return done

    async def drop(self, files: tuple[str, ...]) -> None:
        """As the port says."""
        for name in self._there(files):
            self.cached[name] = 0

    async def host(self) -> HostMemory | None:
        """As the port says; what is cached counts as available."""
        return self.memory

    def _there(self, files: tuple[str, ...]) -> list[str]:
        return [name for name in dict.fromkeys(files) if name in self.sizes]
