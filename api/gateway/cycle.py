"""One request and its answer, as uvicorn serves them, with what its framing leaves out."""

from __future__ import annotations

import sys
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

if TYPE_CHECKING:
    from uvicorn._types import ASGISendEvent

_BODILESS = (204, 304)


class EdgeCycle(RequestResponseCycle):
    """Answers of any status; 204 and 304 have no body, whatever length they name."""

    def send(self, message: ASGISendEvent) -> Awaitable[None]:  # type: ignore[override] # no extra frame
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            status = message["status"]
            if status not in STATUS_LINE:
                STATUS_LINE[status] = b"HTTP/1.1 %d \r\n" % status
            if status in _BODILESS:
                return self._send_bodiless(message)
        return super().send(message)

    async def _send_bodiless(self, message: ASGISendEvent) -> None:
        await super().send(message)
        self.chunked_encoding = False
        self.expected_content_length = 0


class OldCallerCycle(EdgeCycle):
    """For HTTP/1.0, which has no chunks: an answer of unknown length ends with its connection."""

    _ends_with_connection = False

    async def send(self, message: ASGISendEvent) -> None:
        """Send a part of the answer."""
        if message["type"] == "http.response.start":
            names = {name.lower() for name, _ in message.get("headers", [])}
            if b"content-length" not in names:
                self._ends_with_connection = True
                self.chunked_encoding = False
        elif self._ends_with_connection and message["type"] == "http.response.body":
            is_last = not message.get("more_body", False)
            size = len(message.get("body", b""))
            self.expected_content_length = size if is_last else sys.maxsize
        await super().send(message)
