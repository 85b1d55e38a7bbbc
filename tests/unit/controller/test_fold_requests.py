"""Requests in the world: who waits, who flies, since when, and what odd orders do to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import FirstTokenSent, IntentKind, IntentSignal, LoadCause, PriorityClass
from contracts.ids import GatewayId, ModelId, RequestId
from contracts.messages import LoadWanted
from contracts.world import OpenRequest, PrefetchTally, Residency
from controller import open_requests
from controller.fold import fold
from controller.open_requests import end_request, fold_wanted
from tests.worlds import (
    A,
    B,
    cancelled,
    completed,
    dispatched,
    failed,
    model,
    received,
    stamp,
    world,
)


def after(start, *events):
    for event in events:
        start = fold(start, event)
    return start


def counts(w, name=A):
    status = w.models[name]
    return status.waiting, status.in_flight


def test_a_request_waits_flies_and_ends():
    w = after(world(model(A)), received("r", A, 101.0))
    assert counts(w) == (1, 0)
    assert w.requests == {
        RequestId("r"): OpenRequest(model=A, source="gw", received_at_s=101.0, dispatched_at_s=None)
    }
    assert (w.models[A].wanted_since_s, w.models[A].last_used_at_s) == (101.0, 101.0)
    w = fold(w, dispatched("r", A, 105.0))
    assert counts(w) == (0, 1)
    assert w.models[A].wanted_since_s is None
    assert w.requests[RequestId("r")].dispatched_at_s == 105.0
    w = fold(w, completed("r", A, 109.0))
    assert counts(w) == (0, 0)
    assert w.requests == {}
    assert w.models[A].last_used_at_s == 109.0


@pytest.mark.parametrize("end", [completed, failed, cancelled])
@pytest.mark.parametrize("sent", [False, True])
def test_every_kind_of_end_closes_a_request_wherever_it_is(end, sent):
    w = after(world(model(A)), received("r", A, 101.0), *[dispatched("r", A, 102.0)] * sent)
    w = fold(w, end("r", A, 103.0))
    assert counts(w) == (0, 0)
    assert not w.requests
    # Who waited and left has used nothing at 103.
    assert w.models[A].last_used_at_s == (103.0 if sent else 101.0)


def test_an_event_moves_the_worlds_time_and_generation_but_never_back():
    w = after(world(model(A), now_s=100.0), received("r", A, 101.0))
    assert (w.taken_at_s, w.generation) == (101.0, 1)
    w = fold(w, completed("r", A, 99.0))
    assert (w.taken_at_s, w.generation) == (101.0, 2)


def test_a_late_end_does_not_move_the_last_use_back():
    w = after(world(model(A)), received("r", A, 101.0), dispatched("r", A, 102.0))
    w = after(w, received("s", A, 110.0), completed("r", A, 105.0))
    assert w.models[A].last_used_at_s == 110.0


def test_the_oldest_wait_counts_even_when_it_is_told_last():
    w = after(world(model(A)), received("r", A, 105.0), received("s", A, 101.0))
    assert w.models[A].wanted_since_s == 101.0
    assert counts(w) == (2, 0)
    w = fold(w, dispatched("r", A, 106.0))
    assert w.models[A].wanted_since_s == 101.0


def test_doubled_events_count_once():
    r = received("r", A, 101.0)
    sent, end = dispatched("r", A, 102.0), completed("r", A, 103.0)
    w = after(world(model(A)), r, r, sent, sent)
    assert counts(w) == (0, 1)
    assert counts(after(w, end, end)) == (0, 0)


def test_events_of_requests_that_nobody_knows_change_nothing():
    start = world(model(A))
    for event in (dispatched("r", A, 101.0), completed("r", A, 101.0), cancelled("r", A, 101.0)):
        w = fold(start, event)
        assert w.models == start.models
        assert not w.requests


def test_requests_without_a_model_or_for_an_unknown_one_are_not_counted():
    w = after(world(model(A)), received("r", None, 101.0), received("s", ModelId("x"), 101.0))
    assert not w.requests
    assert set(w.models) == {A}
    assert w.models[A].arrivals == 0


def test_each_arrival_counts_also_when_the_gateway_asked_for_its_load_before():
    wanted = LoadWanted(
        gateway=GatewayId("gw"), request_id=RequestId("r"), model=A, at_s=100.5, deadline_s=160.0
    )
    w = fold_wanted(world(model(A)), wanted)
    assert counts(w) == (1, 0)
    assert w.models[A].wanted_since_s == 100.5
    assert w.models[A].arrivals == 0
    w = fold_wanted(fold(w, received("r", A, 100.4)), wanted)
    assert counts(w) == (1, 0)
    assert w.models[A].arrivals == 1


def test_first_token_and_intent_change_nothing_but_the_time():
    start = world(model(A))
    for event in (
        FirstTokenSent(**stamp(101.0), request_id=RequestId("r"), model=A, ttft_s=0.1),
        IntentSignal(**stamp(101.0), client="c", kind=IntentKind.MODEL_PICKED, model=A),
    ):
        w = fold(start, event)
        assert (w.models, w.requests, w.taken_at_s) == (start.models, start.requests, 101.0)


def test_at_the_bound_new_requests_are_not_tracked_one_by_one(monkeypatch):
    monkeypatch.setattr(open_requests, "MAX_OPEN_REQUESTS", 1)
    w = after(world(model(A), model(B)), received("r", A, 101.0), received("s", B, 101.0))
    assert list(w.requests) == ["r"]
    assert counts(w, B) == (0, 0)
    assert w.models[B].arrivals == 1
    assert counts(fold(w, completed("s", B, 102.0)), B) == (0, 0)


def test_ending_an_unknown_request_is_nothing():
    w = world(model(A))
    assert end_request(w, RequestId("r"), 101.0) is w


class TestPrefetches:
    """The first use of a prefetched model makes its prefetch a used one; that is told once."""

    def prefetched(self, residency=Residency.HOT):
        return world(
            model(A, residency, load_cause=LoadCause.PREFETCH),
            prefetches=PrefetchTally(started=1),
        )

    @pytest.mark.parametrize("residency", [Residency.HOT, Residency.LOADING, Residency.DRAINING])
    def test_a_request_uses_it(self, residency):
        w = fold(self.prefetched(residency), received("r", A, 101.0))
        assert w.prefetches == PrefetchTally(started=1, used=1)
        assert w.models[A].used_since_load
        assert fold(w, received("s", A, 102.0)).prefetches == PrefetchTally(started=1, used=1)

    def test_a_load_on_demand_is_no_prefetch(self):
        w = world(model(A, Residency.HOT, load_cause=LoadCause.DEMAND))
        w = fold(w, received("r", A, 101.0))
        assert w.prefetches == PrefetchTally()
        assert w.models[A].used_since_load

    def test_a_request_for_a_cold_model_uses_no_load(self):
        w = fold(world(model(A)), received("r", A, 101.0))
        assert not w.models[A].used_since_load


def test_a_retry_waits_as_any_other_but_is_no_further_demand():
    first = fold(world(model(A)), received("r", A, 101.0))
    retry = replace(received("s", A, 102.0), is_retry=True, priority=PriorityClass.BATCH)
    after = fold(first, retry)
    assert (after.models[A].waiting, after.models[A].arrivals) == (2, 1)
    assert after.requests[RequestId("s")].priority is PriorityClass.BATCH


@pytest.mark.parametrize(
    ("priority", "seen_s"),
    [(PriorityClass.REALTIME, (101.0, 109.0)), (PriorityClass.BATCH, (None, None))],
)
def test_only_realtime_requests_count_as_peoples_use(priority, seen_s):
    w = after(world(model(A)), replace(received("r", A, 101.0), priority=priority))
    assert w.models[A].last_realtime_at_s == seen_s[0]
    w = after(w, dispatched("r", A, 105.0), completed("r", A, 109.0))
    assert w.models[A].last_realtime_at_s == seen_s[1]
    assert w.models[A].last_used_at_s == 109.0
