"""How long deciding takes is told in real seconds."""

from __future__ import annotations

import pytest

from controller.plan_times import PlanTimes


class SteppedClock:
    """A clock that a test moves, ten times as fast as the world."""

    scale = 10.0

    def __init__(self) -> None:
        self.at_s = 0.0

    def monotonic_s(self) -> float:
        return self.at_s


def test_runs_are_counted_with_how_long_they_took():
    clock = SteppedClock()
    times = PlanTimes(clock)  # type: ignore[arg-type]  # what it uses of a clock
    assert times.tally().recent_p95_s is None

    def taking(real_s: float) -> float:
        def run() -> float:
            clock.at_s += real_s * clock.scale
            return 7.0

        return times.timed(run)

    assert taking(0.5) == 7.0
    for _ in range(99):
        taking(0.01)
    tally = times.tally()
    assert (tally.runs, tally.recent_max_s) == (100, 0.5)
    assert tally.total_s == pytest.approx(1.49)
    assert tally.recent_p95_s == pytest.approx(0.01)
