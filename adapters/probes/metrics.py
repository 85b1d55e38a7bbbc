"""What is to be read, and what of it at every look and what only now and then."""

from __future__ import annotations

from dataclasses import dataclass

SLOW_S = 30.0
"""What changes slowly, or costs more to ask for, is read this often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The metrics that are wanted. Memory always is, since budgets rest on it.

    ``gpu`` of ``utilization``, ``temperature``, ``power``; ``cpu`` of ``utilization``,
    ``load_average``, ``context_switches``, ``pressure``. Other words ask for what is read anyway.
    """

    gpu: frozenset[str] = frozenset({"utilization", "temperature"})
    cpu: frozenset[str] = frozenset({"utilization", "load_average", "pressure"})
    slow_s: float = SLOW_S


class Pace:
    """When the slow part is due: at first, and then every ``every_s``, also when time steps."""

    def __init__(self, every_s: float) -> None:
        self._every_s = every_s
        self._last_s: float | None = None

    def due(self, now_s: float) -> bool:
        """Whether it is; if so it counts as done."""
        if self._last_s is not None and 0.0 <= now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        return True

    def again(self) -> None:
        """It is due at the next look."""
        self._last_s = None
