"""One line in the log when a fault begins and one when it ends, however often it is met between."""

from __future__ import annotations

import structlog

_log = structlog.get_logger("headstart.probes")

MAX_OPEN = 512
"""Faults that are told apart; beyond it the oldest counts as ended, without a line."""


class Faults:
    """The faults of one source that have begun and not ended."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._open: dict[tuple[str, str], str] = {}

    @property
    def open(self) -> int:
        """How many there are now."""
        return len(self._open)

    def begin(
        self, what: str, error: str, *, subject: str = "", hint: str = "", usual: bool = False
    ) -> None:
        """``what`` of ``subject`` cannot be read; another cause of the same is no other fault.

        ``usual``: that is in the nature of the thing, and nothing for people to look into.
        """
        if (what, subject) in self._open:
            return
        if len(self._open) >= MAX_OPEN:
            del self._open[next(iter(self._open))]
        self._open[what, subject] = error
        about = {"subject": subject} if subject else {}
        if hint:
            about["hint"] = hint
        tell = _log.info if usual else _log.warning
        tell("probe_fault", source=self._source, what=what, error=error, **about)

    def end(self, what: str, *, subject: str = "") -> None:
        """It was read."""
        if self._open.pop((what, subject), None) is not None:
            about = {"subject": subject} if subject else {}
            _log.info("probe_fault_over", source=self._source, what=what, **about)
