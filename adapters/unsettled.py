"""What a server acknowledged, and may lose nevertheless. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

UNSETTLED_S = 3.0
"""Real seconds in which a server may still lose what it acknowledged.

``appendfsync everysec`` writes at most two seconds late, and a replica is about a second behind.
"""
MAX_UNSETTLED = 5_000
"""Records; two megabytes of a gateway, and all of three seconds up to 400 requests in each."""
FORGOTTEN_S = 3600.0
"""What was written so long ago is not looked for: it may have gone by its age."""


class Unsettled:
    """The newest records of one writer.

    Bounded: of more than ``MAX_UNSETTLED`` the oldest are taken for settled.

    Attributes
    ----------
    owed : list of bytes
        What the server lost and does not have again yet; who has appended some takes them off.
    """

    def __init__(self) -> None:
        self.owed: list[bytes] = []
        self._place = ""
        self._at_s = 0.0
        self._batches: deque[tuple[float, Sequence[bytes]]] = deque()
        self._count = 0

    def place(self, now_s: float) -> str:
        """The id of the newest entry, which must still be there; empty: none is known."""
        return "" if now_s - self._at_s > FORGOTTEN_S else self._place

    def appended(self, batch: Sequence[bytes], place: str, now_s: float) -> None:
        """The server had all that were appended before, and has these too."""
        self._place, self._at_s = place, now_s
        self._batches.append((now_s, batch))
        self._count += len(batch)
        while self._count > MAX_UNSETTLED or self._batches[0][0] < now_s - UNSETTLED_S:
            self._count -= len(self._batches.popleft()[1])
            if not self._batches:
                break

    def lost(self) -> int:
        """The server lost its end; how many are owed to it now."""
        self.owed[:0] = [record for _, batch in self._batches for record in batch]
        del self.owed[:-MAX_UNSETTLED]
        self._batches.clear()
        self._count = 0
        self._place = ""
        return len(self.owed)
