"""How long deciding takes, so that it can be told: a fold over the runs of one term."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from contracts.ports import Clock
from contracts.world import PlanningTally

RECENT = 500
"""Runs that the recent figures are of: some minutes of them."""


class PlanTimes:
    """Times runs. Real seconds: a clock that runs fast makes no run slower."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._recent_s: deque[float] = deque(maxlen=RECENT)
        self._runs = 0
        self._total_s = 0.0

    def timed(self, run: Callable[[], float]) -> float:
        """What ``run`` gives; how long it took is kept. One that raises is not counted."""
        begun_s = self._clock.monotonic_s()
        given = run()
        took_s = (self._clock.monotonic_s() - begun_s) / self._clock.scale
        self._recent_s.append(took_s)
        self._runs += 1
        self._total_s += took_s
        return given

    def tally(self) -> PlanningTally:
        """The figures so far."""
        ranked = sorted(self._recent_s)
        return PlanningTally(
            runs=self._runs,
            total_s=self._total_s,
            recent_p95_s=ranked[(len(ranked) * 95 - 1) // 100] if ranked else None,
            recent_max_s=ranked[-1] if ranked else None,
        )
