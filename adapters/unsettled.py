"""What a server acknowledged, and may lose nevertheless. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

UNSETTLED_S = 5.0
"""Real seconds in which a server may still lose what it acknowledged.

``appendfsync everysec`` writes at most two seconds late, and a replica is about a second behind.
"""
MAX_UNSETTLED = 10_000
FORGOTTEN_S = 3600.0
"""What was written so long ago is not looked for: it may have gone by its age."""


class Unsettled:
    """The newest records of one writer.

    Bounded: of more than ten thousand the oldest are taken for settled.

    Attributes
    ----------
    owed : list of bytes
        What the server lost and does not have again yet; who has appended some takes them off.
    """

    def __init__(self) -> None:
        self.owed: list[bytes] = []
        self._place = ""
        self._at_s = 0.0
        self._records: deque[tuple[float, bytes]] = deque(maxlen=MAX_UNSETTLED)

    def place(self, now_s: float) -> str:
        """The id of the newest entry, which must still be there; empty: none is known."""
        return "" if now_s - self._at_s > FORGOTTEN_S else self._place

    def appended(self, batch: Sequence[bytes], place: str, now_s: float) -> None:
        """The server had all that were appended before, and has these too."""
        self._place, self._at_s = place, now_s
        while self._records and self._records[0][0] < now_s - UNSETTLED_S:
            self._records.popleft()
        self._records.extend((now_s, record) for record in batch)

    def lost(self) -> int:
        """The server lost its end; how many are owed to it now."""
        self.owed[:0] = [record for _, record in self._records]
        del self.owed[:-MAX_UNSETTLED]
        self._records.clear()
        self._place = ""
        return len(self.owed)
