"""What people leave for batches."""

from __future__ import annotations

from dataclasses import replace

import pytest

from contracts.events import LoadCause, PriorityClass
from contracts.ids import RequestId
from contracts.limits import ClassLimits
from contracts.world import OpenRequest, Residency
from controller.lulls import LULL_S, VALID_S, background_limits
from tests.worlds import GATEWAY, A, B, C, config, curve, model, world

NOW_S = 1000.0
HOT = Residency.HOT


def _limits(*models, forecasts=(), slots=4, **fields) -> ClassLimits:
    snapshot = world(*models, now_s=NOW_S, **fields)
    batch, background = background_limits(
        snapshot, {f.model: f for f in forecasts}, config(), slots=slots
    )
    assert replace(background, priority=PriorityClass.BATCH) == batch
    assert background.priority is PriorityClass.BACKGROUND
    return batch


def _request(priority: PriorityClass, *, running: bool = True) -> OpenRequest:
    return OpenRequest(
        model=A,
        source=GATEWAY,
        received_at_s=NOW_S,
        dispatched_at_s=NOW_S if running else None,
        priority=priority,
    )


def test_limits_are_for_batches_and_hold_for_a_while():
    limits = _limits(model(A, HOT))
    assert (limits.priority, limits.valid_until_s) == (PriorityClass.BATCH, NOW_S + VALID_S)


@pytest.mark.parametrize(("realtime", "slots"), [(0, 4), (1, 3), (3, 1), (9, 1)])
def test_each_realtime_request_that_runs_takes_a_slot_and_one_is_left(realtime, slots):
    requests = {RequestId(f"r{n}"): _request(PriorityClass.REALTIME) for n in range(realtime)} | {
        RequestId("b"): _request(PriorityClass.BATCH),
        RequestId("w"): _request(PriorityClass.REALTIME, running=False),
    }
    assert _limits(model(A, HOT), requests=requests).slots == slots


def test_what_fits_beside_the_residents_may_be_loaded():
    assert _limits(
        model(A, HOT, mb=10, last_realtime_at_s=NOW_S), model(B, mb=20), model(C, mb=21)
    ).loadable == (B,)


def test_what_was_just_used_is_not_evicted_and_what_rests_is():
    busy = model(A, HOT, mb=30, last_realtime_at_s=NOW_S - LULL_S + 1.0)
    assert _limits(busy, model(B)).loadable == ()
    assert _limits(replace(busy, last_realtime_at_s=NOW_S - LULL_S), model(B)).loadable == (B,)
    never_used = model(A, HOT, mb=30, since_s=NOW_S - 10.0)
    assert _limits(never_used, model(B)).loadable == ()


def test_a_forecast_says_more_than_the_last_use():
    recent = model(A, HOT, mb=30, last_realtime_at_s=NOW_S - 20.0)
    rested = model(A, HOT, mb=30, last_realtime_at_s=0.0)
    calm = curve(A, {300.0: 0.05}, made_s=NOW_S, expires_s=NOW_S + 60.0)
    soon = curve(A, {20.0: 2.0}, made_s=NOW_S, expires_s=NOW_S + 60.0)
    assert _limits(recent, model(B), forecasts=[calm]).loadable == (B,)
    assert _limits(rested, model(B), forecasts=[soon]).loadable == ()
    expired = curve(A, {20.0: 2.0}, made_s=0.0, expires_s=NOW_S)
    assert _limits(rested, model(B), forecasts=[expired]).loadable == (B,)


def test_nothing_busy_pinned_or_too_large_and_no_node_that_is_away():
    assert (
        _limits(model(A, HOT, mb=30, last_realtime_at_s=0.0, in_flight=1), model(B)).loadable == ()
    )
    assert (
        _limits(model(A, HOT, mb=30, last_realtime_at_s=0.0, pinned=True), model(B)).loadable == ()
    )
    assert _limits(model(B, mb=31)).loadable == ()
    assert _limits(model(B), alive=False).loadable == ()


def test_a_limit_on_the_number_of_residents_holds_for_batches_too():
    used = model(A, HOT, last_realtime_at_s=NOW_S)
    assert _limits(used, model(B), model_limit=1).loadable == ()
    assert _limits(replace(used, last_realtime_at_s=0.0), model(B), model_limit=1).loadable == (B,)


def test_a_model_of_unknown_size_may_be_loaded_where_there_is_room_for_any():
    assert _limits(model(B, mb=None)).loadable == (B,)


def test_what_was_loaded_for_a_batch_alone_is_no_bodys():
    own = model(A, HOT, mb=30, since_s=NOW_S - 1.0, used_s=NOW_S, load_cause=LoadCause.DEMAND)
    assert _limits(own, model(B)).loadable == (B,)
    ahead = replace(own, load_cause=LoadCause.PREFETCH)
    assert _limits(ahead, model(B)).loadable == (), "somebody is expected"
