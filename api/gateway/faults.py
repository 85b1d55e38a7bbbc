"""One log line when a fault begins, and one when it ends."""

from __future__ import annotations

import structlog

from contracts.ids import NodeId

_log = structlog.get_logger("gateway")


class Fault:
    """A fault that may come again and again while it lasts.

    Parameters
    ----------
    event : str
        The stable key of its two lines; the second has ``_ended`` added.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self._times = 0

    def begin(self, error: object, **details: object) -> None:
        """It happened; only the first time in a row is logged."""
        self._times += 1
        if self._times == 1:
            _log.warning(self._event, error=str(error), **details)

    def end(self, **details: object) -> None:
        """It works; logged if it did not before."""
        if self._times:
            _log.info(f"{self._event}_ended", times=self._times, **details)
            self._times = 0


class Faults:
    """One for each node, made when it is first asked for."""

    def __init__(self, event: str) -> None:
        self._event = event
        self._faults: dict[NodeId, Fault] = {}

    def of(self, node: NodeId) -> Fault:
        """That of a node."""
        fault = self._faults.get(node)
        if fault is None:
            fault = self._faults[node] = Fault(self._event)
        return fault

    def forget(self, node: NodeId) -> None:
        """It has left."""
        self._faults.pop(node, None)
