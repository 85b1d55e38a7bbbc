"""What the controller's own events have in common."""

from __future__ import annotations

from typing import TypedDict

from contracts.ports import Clock


class Stamp(TypedDict):
    """The fields that every event has."""

    event_id: str
    at_s: float
    source: str


class Stamps:
    """Makes them: the ids are unique over restarts, since each term has a token of its own."""

    def __init__(self, owner: str, token: int, clock: Clock) -> None:
        self._owner = owner
        self._token = token
        self._clock = clock
        self._events = 0

    def __call__(self) -> Stamp:
        """The next one, at this moment."""
        self._events += 1
        return Stamp(
            event_id=f"{self._owner}-{self._token}-{self._events}",
            at_s=self._clock.now_s(),
            source=self._owner,
        )
