"""A node that does not answer is left alone for a while, so that orders to it fail at once."""

from __future__ import annotations

from contracts.errors import Transient

FAILURES = 3
FIRST_PAUSE_S = 5.0
LONGEST_PAUSE_S = 30.0


class Breaker:
    """Counts calls that had no answer at all; a refusal is an answer.

    After three in a row no call is made for five seconds, and for twice as long each time that
    one after it fails as well, up to half a minute. Any answer closes it.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._failures = 0
        self._pause_s = 0.0
        self._until_s: float | None = None
        self._last = ""

    @property
    def is_open(self) -> bool:
        """Whether the last calls had no answer."""
        return self._until_s is not None

    def check(self, now_s: float) -> None:
        """Raise Transient while the node is left alone."""
        if self._until_s is not None and now_s < self._until_s:
            rest_s = self._until_s - now_s
            raise Transient(
                f"{self._name}: not asked for another {rest_s:.1f} s, since it does not answer "
                f"({self._last})"
            )

    def answered(self) -> None:
        """There was an answer."""
        self._failures, self._pause_s, self._until_s = 0, 0.0, None

    def failed(self, now_s: float, why: str) -> None:
        """There was none. Calls that began before the pause and end in it do not prolong it."""
        self._last = why
        if self._until_s is not None and now_s < self._until_s:
            return
        self._failures += 1
        if self._failures >= FAILURES:
            self._pause_s = min(LONGEST_PAUSE_S, 2.0 * self._pause_s or FIRST_PAUSE_S)
            self._until_s = now_s + self._pause_s
