"""Who asks again for what it was just refused: the same demand, not one more. Pure.

A client (by key or address) that was answered 429 or 503 and sends the same body for the
same model within a minute is retrying. Bodies are compared by digest, and a digest is only
made of what was refused, and of what comes from a client that was refused something within
that minute: nobody else pays for it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from api.gateway.detect import Bytes
from contracts.ids import ModelId

RETRY_S = 60.0
MAX_REFUSALS = 10_000
MAX_PER_CLIENT = 100

_What = tuple[ModelId | None, bytes]


class RetryBook:
    """What was refused to whom within the last minute.

    Attributes
    ----------
    dropped : int
        Refusals that were forgotten early, since there were too many.
    """

    def __init__(self) -> None:
        self._refused: OrderedDict[str, OrderedDict[_What, float]] = OrderedDict()
        self._size = 0
        self.dropped = 0

    def knows(self, client: str) -> bool:
        """Whether it is worth making the digest of what ``client`` sends."""
        return client in self._refused

    def refused(self, client: str, model: ModelId | None, digest: bytes, now_s: float) -> None:
        """``client`` was answered 429 or 503."""
        self._forget_old(now_s)
        mine = self._refused.setdefault(client, OrderedDict())
        self._refused.move_to_end(client)
        self._size += (model, digest) not in mine
        mine[(model, digest)] = now_s
        mine.move_to_end((model, digest))
        if len(mine) > MAX_PER_CLIENT:
            mine.popitem(last=False)
            self._lose()
        if self._size > MAX_REFUSALS:
            self._drop_oldest()
            self.dropped += 1

    def is_retry(self, client: str, model: ModelId | None, digest: bytes, now_s: float) -> bool:
        """Whether this was refused a moment ago. It is asked once: the next one is a new demand."""
        mine = self._refused.get(client)
        at_s = None if mine is None else mine.pop((model, digest), None)
        if mine is None or at_s is None:
            return False
        self._size -= 1
        if not mine:
            del self._refused[client]
        return now_s - at_s <= RETRY_S

    def _lose(self) -> None:
        self._size -= 1
        self.dropped += 1

    def _drop_oldest(self) -> None:
        """Clients are kept in the order of their last refusal."""
        client, mine = next(iter(self._refused.items()))
        mine.popitem(last=False)
        self._size -= 1
        if not mine:
            del self._refused[client]

    def _forget_old(self, now_s: float) -> None:
        while self._refused:
            _, mine = next(iter(self._refused.items()))
            newest_s = next(reversed(mine.values()))
            if now_s - newest_s <= RETRY_S:
                return
            _, mine = self._refused.popitem(last=False)
            self._size -= len(mine)


def digest_of(body: Bytes) -> bytes:
    """What bodies are compared by."""
    return hashlib.blake2b(body, digest_size=16).digest()
