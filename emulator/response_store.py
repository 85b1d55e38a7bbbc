"""Answers of ``/v1/responses``, kept for a while."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

MAX_STORED = 1000
"""Answers kept for ``GET /v1/responses/{id}``; the oldest go first."""


class ResponseStore:
    """Answers by id, bounded."""

    def __init__(self) -> None:
        self._stored: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def put(self, response: dict[str, Any]) -> None:
        """Keep it."""
        self._stored[response["id"]] = response
        if len(self._stored) > MAX_STORED:
            self._stored.popitem(last=False)

    def get(self, identity: str) -> dict[str, Any] | None:
        """The answer of that id, if it is still kept."""
        return self._stored.get(identity)
