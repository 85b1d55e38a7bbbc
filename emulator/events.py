"""The emulator's event log: bounded in memory, whole in a file."""

from __future__ import annotations

from collections import deque
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

MAX_EVENTS = 100_000


class EventLog:
    """What happened, in order. Each event has a ``seq`` that grows by one.

    Parameters
    ----------
    path : Path, optional
        Every event is also written here, one line of JSON each.
    max_events : int
        Events kept in memory; older ones are dropped and counted.
    """

    def __init__(self, path: Path | None = None, *, max_events: int = MAX_EVENTS) -> None:
        self._events: deque[dict[str, Any]] = deque(maxlen=max_events)
        self._seq = 0
        self._encode = msgspec.json.Encoder().encode
        self._file: IO[bytes] | None = None
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("ab")

    def append(self, event: dict[str, Any]) -> None:
        """Add one event; ``seq`` is put first."""
        self._seq += 1
        numbered = {"seq": self._seq, **event}
        self._events.append(numbered)
        if self._file is not None:
            self._file.write(self._encode(numbered) + b"\n")

    def after(self, seq: int, *, limit: int = 10_000) -> list[dict[str, Any]]:
        """Events with a greater number than ``seq``, oldest first."""
        first = self._seq - len(self._events) + 1
        skip = max(0, seq + 1 - first)
        return list(islice(self._events, skip, skip + limit))

    @property
    def last_seq(self) -> int:
        """Number of the newest event, 0 before the first."""
        return self._seq

    @property
    def dropped(self) -> int:
        """Events that fell out of memory."""
        return self._seq - len(self._events)

    def flush(self) -> None:
        """Bring what was written to the file."""
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
