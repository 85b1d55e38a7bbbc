"""What can be kept of an answer that is one JSON document, however long. Pure.

A short one is read whole. Of a long one (a thousand vectors, a picture in base64) only the
beginning and the end are kept: the model stands in one, the usage in the other.
"""

from __future__ import annotations

import re

import msgspec

MAX_DOCUMENT_BYTES = 65_536
"""A longer document is not kept whole."""

_HEAD_BYTES = 4_096
_TAIL_BYTES = 16_384
_MAX_TRIES = 4
_BOM = b"\xef\xbb\xbf"
_USAGE = re.compile(rb'"(?:usage|timings)"\s*:')
_MODEL = re.compile(rb'\s*\{[^{}\[\]]*?"model"\s*:\s*"([^"\\]{1,512})"')


class DocumentScan:
    """Takes a document in pieces, and says at its end what could be read of it."""

    __slots__ = ("_data", "_head")

    def __init__(self) -> None:
        self._data = bytearray()
        self._head: bytes | None = None

    def feed(self, data: bytes) -> None:
        """The next piece."""
        self._data += data
        if self._head is None:
            if len(self._data) <= MAX_DOCUMENT_BYTES:
                return
            self._head = bytes(self._data[:_HEAD_BYTES])
        if len(self._data) > 2 * _TAIL_BYTES:
            del self._data[:-_TAIL_BYTES]

    def end(self) -> object:
        """The document, or an object of what its two ends tell; None: nothing could be read."""
        if self._head is None:
            return _decoded(bytes(self._data).removeprefix(_BOM)) if self._data else None
        found: dict[str, object] = {}
        if (model := _MODEL.match(self._head.removeprefix(_BOM))) is not None:
            found["model"] = model[1].decode("utf-8", "replace")
        found.update(_last_members(bytes(self._data[-_TAIL_BYTES:])))
        return found or None


def _last_members(tail: bytes) -> dict[str, object]:
    """The members of the outermost object from its usage on.

    From there to the end of the document the rest is an object but for its first brace;
    were the place inside another object or a string, it would not be one.
    """
    places = [found.start() for found in _USAGE.finditer(tail)]
    for place in reversed(places[-_MAX_TRIES:]):
        members = _decoded(b"{" + tail[place:])
        if isinstance(members, dict):
            return members
    return {}


def _decoded(document: bytes) -> object:
    try:
        return msgspec.json.decode(document)
    except (ValueError, RecursionError):
        return None
