"""What the controller's own events have in common."""

from __future__ import annotations

from typing import TypedDict


class Stamp(TypedDict):
    """The fields that every event has."""

    event_id: str
    at_s: float
    source: str
