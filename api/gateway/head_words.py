"""What the headers of a request say, worked out once for all that say the same. Pure.

A program sends the same headers with each of its requests, but for the length of the body. What
follows from them alone (keys, wishes, what goes on) is kept for the last of them.
"""

from __future__ import annotations

from api.gateway.detect import Wishes

Header = tuple[bytes, bytes]

MAX_KEPT = 256
MAX_KEPT_BYTES = 4_096
"""Longer heads are worked out anew each time."""

LENGTH = b"content-length"


class HeadWords:
    """What some headers say, as far as somebody asked already.

    Attributes
    ----------
    first : dict
        The first value of each header but the length, by its name in lower case.
    keys : list or None
        The keys that they hold; None: not worked out yet.
    wishes : Wishes or None
        What they ask of us; None: not worked out yet.
    sent, sent_for : tuple
        The headers that went on the last time, and what else they depended on.
    """

    __slots__ = ("first", "keys", "sent", "sent_for", "wishes")

    def __init__(self, first: dict[bytes, bytes]) -> None:
        self.first = first
        self.keys: list[bytes] | None = None
        self.wishes: Wishes | None = None
        self.sent: tuple[Header, ...] = ()
        self.sent_for: tuple[object, ...] | None = None


class HeadBook:
    """The last heads; the one that is known longest goes first."""

    __slots__ = ("_kept",)

    def __init__(self) -> None:
        self._kept: dict[tuple[Header, ...], HeadWords] = {}

    def __len__(self) -> int:
        return len(self._kept)

    def words_of(self, steady: tuple[Header, ...]) -> HeadWords:
        """What these headers say, which are all but the length."""
        words = self._kept.get(steady)
        if words is None:
            words = HeadWords(dict(reversed(steady)))
            if sum(len(name) + len(value) for name, value in steady) <= MAX_KEPT_BYTES:
                if len(self._kept) >= MAX_KEPT:
                    del self._kept[next(iter(self._kept))]
                self._kept[steady] = words
        return words


def split_length(headers: tuple[Header, ...]) -> tuple[tuple[Header, ...], bytes | None]:
    """The headers without the body's length, and the length as it was written."""
    for place, (name, value) in enumerate(headers):
        if name == LENGTH:
            return headers[:place] + headers[place + 1 :], value
    return headers, None
