"""What the predictor's bench measures, with little of it."""

from __future__ import annotations

from cli.bench_predictor import drawn_events, events_per_s, forecast_s, resident_mb
from contracts.events import RequestCompleted, RequestReceived


def test_each_request_is_told_from_its_coming_to_its_end() -> None:
    events = list(drawn_events(5, models=2, seed=1, per_s=10.0))

    assert [type(event) for event in events].count(RequestReceived) == 5
    assert [type(event) for event in events].count(RequestCompleted) == 5
    assert len({event.event_id for event in events}) == 20
    assert [event.at_s for event in events] == sorted(event.at_s for event in events)
    assert events == list(drawn_events(5, models=2, seed=1, per_s=10.0))


def test_all_three_figures_are_of_something() -> None:
    assert events_per_s(400, models=3, seed=1) > 0.0
    assert forecast_s(3, seed=1) > 0.0
    assert resident_mb(3, seed=1) > 10.0
