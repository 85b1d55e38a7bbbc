"""What a server acknowledged, and may lose nevertheless. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

UNSETTLED_S = 5.0
"""Real seconds in which a server may still lose what it acknowledged.

``appendfsync everysec`` writes at most two seconds late, and a replica is about a second behind.
"""
MAX_UNSETTLED = 10_000


class Unsettled:
    """The newest records of one writer.

    Bounded: of more than ten thousand the oldest are taken for settled.

    Attributes
    ----------
    place : str
        The id of the newest; empty: none is known.
    owed : tuple of bytes
        What the server lost and does not have again yet.
    """

    def __init__(self) -> None:
        self.place = ""
        self.owed: tuple[bytes, ...] = ()
        self._records: deque[tuple[float, bytes]] = deque(maxlen=MAX_UNSETTLED)

    def appended(self, batch: Sequence[bytes], place: str, now_s: float) -> None:
        """The server had all that were appended before, and has these too."""
        self.place = place
        while self._records and self._records[0][0] < now_s - UNSETTLED_S:
            self._records.popleft()
        self._records.extend((now_s, record) for record in batch)

    def forgotten(self) -> int:
        """The server lost its end; how many are owed to it now."""
        kept = (record for _, record in self._records)
        self.owed = tuple(dict.fromkeys((*self.owed, *kept)))[-MAX_UNSETTLED:]
        self._records.clear()
        self.place = ""
        return len(self.owed)

    def paid(self) -> None:
        """What was owed is there again."""
        self.owed = ()
