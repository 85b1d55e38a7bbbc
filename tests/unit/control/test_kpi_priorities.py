"""Who went ahead of whom."""

from __future__ import annotations

from api.control.kpis import violations as violations_module
from api.control.kpis.violations import PriorityWatch, WentAhead
from contracts.events import (
    AnyEvent,
)
from tests.kpi_events import (
    LOW,
    MIDDLE,
    UNRELATED,
    A,
    B,
    left,
    received,
    sent,
)


class TestPriorities:
    def ahead(self, *events: AnyEvent) -> list[WentAhead]:
        watch = PriorityWatch()
        return [one for event in events if (one := watch.observe(event)) is not None]

    def test_one_that_goes_before_an_earlier_one_of_a_higher_class_is_a_violation(self):
        assert self.ahead(
            received("high", 0.0), received("low", 1.0, A, LOW), sent("low", 2.0)
        ) == [WentAhead(priority=LOW, is_aged=False)]

    def test_one_that_had_come_before_is_aged(self):
        assert self.ahead(
            received("low", 0.0, A, LOW), received("high", 1.0), sent("low", 2.0)
        ) == [WentAhead(priority=LOW, is_aged=True)]

    def test_order_other_models_ends_and_what_came_at_the_same_moment_are_none(self):
        assert not self.ahead(
            received("high", 0.0), received("low", 1.0, A, LOW), sent("high", 2.0),
            received("low0", 2.0, A, LOW), sent("low", 2.0), sent("low0", 2.0),
            received("other", 0.0, B), received("mid", 1.0, A, MIDDLE), sent("mid", 2.0),
            received("gone", 3.0), received("low2", 3.0, A, LOW), left("gone", 3.5),
            sent("low2", 4.0),
            received("low3", 5.0, A, LOW), received("late", 5.9), sent("low3", 6.0),
            sent("unknown", 7.0), received("none", 8.0, None), sent("none", 8.0, None), UNRELATED,
        )  # fmt: skip

    def test_an_id_that_comes_again_is_the_newer_and_past_the_bound_none_is_watched(
        self, monkeypatch
    ):
        monkeypatch.setattr(violations_module, "_MOST_OPEN", 2)
        assert not self.ahead(
            received("x", 0.0), received("x", 5.0, A, MIDDLE), received("y", 5.0),
            received("low", 6.0, A, LOW), sent("x", 7.0),
        )  # fmt: skip
