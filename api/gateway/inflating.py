"""Looks into compressed answers, which are relayed as they are. Pure, and bounded."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

INFLATED = frozenset({b"gzip", b"x-gzip", b"deflate"})
"""Encodings that can be looked into; others (br, zstd) stay opaque."""

MAX_INFLATED_BYTES = 16 * 1024**2
"""What is looked at of one answer. What comes after it is relayed only."""

_PIECE_BYTES = 65_536
_ANY_HEADER = 32 + zlib.MAX_WBITS


class Inflater:
    """Gives the bytes behind an encoding; nothing more once something is wrong with them."""

    __slots__ = ("_inflated_bytes", "_is_over", "_stream")

    def __init__(self) -> None:
        self._stream = zlib.decompressobj(_ANY_HEADER)
        self._inflated_bytes = 0
        self._is_over = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The next compressed bytes; gives pieces of a bounded size."""
        while data and not self._is_over:
            try:
                piece = self._stream.decompress(data, _PIECE_BYTES)
            except zlib.error:
                self._is_over = True
                return
            self._inflated_bytes += len(piece)
            self._is_over = self._stream.eof or self._inflated_bytes > MAX_INFLATED_BYTES
            data = self._stream.unconsumed_tail
            if piece:
                yield piece
