from __future__ import annotations

from contracts.events import NodeLost
from contracts.ids import NodeId
from contracts.seen_events import KNOWN_IDS, SeenEvents


def event(event_id: str) -> NodeLost:
    return NodeLost(event_id=event_id, at_s=0.0, source="t", node=NodeId("n"), error="")


def test_what_is_told_twice_is_given_once():
    seen = SeenEvents()
    assert [one.event_id for one in seen.fresh(map(event, "abab"))] == ["a", "b"]
    assert [one.event_id for one in seen.fresh(map(event, "bc"))] == ["c"]


def test_the_oldest_ids_are_forgotten():
    seen = SeenEvents()
    for number in range(KNOWN_IDS + 1):
        seen.add(str(number))
    assert "0" not in seen
    assert "1" in seen
