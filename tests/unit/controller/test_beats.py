"""Beats against open requests: what was lost on the way is dropped, what only lags is kept."""

from __future__ import annotations

from contracts.ids import GatewayId
from contracts.messages import GatewayBeat
from controller.beats import BEAT_GRACE_S, drop_gateway, fold_beat, with_preemptible
from controller.fold import fold
from controller.roster import Roster
from tests.worlds import A, B, completed, dispatched, model, received, world


def after(start, *events):
    for event in events:
        start = fold(start, event)
    return start


def beat(at_s, *, in_flight=None, waiting=None, leaving=False, gateway="gw"):
    return GatewayBeat(
        gateway=GatewayId(gateway),
        at_s=at_s,
        in_flight=in_flight or {},
        waiting=waiting or {},
        leaving=leaving,
    )


def open_ids(w):
    return set(w.requests)


def two_of_a():
    return after(
        world(model(A), model(B)),
        received("r", A, 101.0),
        received("s", A, 102.0),
        dispatched("r", A, 103.0),
    )


def test_what_the_gateway_counts_stays():
    w = two_of_a()
    assert fold_beat(w, beat(110.0, in_flight={A: 1}, waiting={A: 1})) == w
    assert fold_beat(w, beat(110.0, in_flight={A: 4}, waiting={A: 4})) == w


def test_a_running_request_that_it_no_longer_counts_has_ended():
    w = fold_beat(two_of_a(), beat(110.0, waiting={A: 1}))
    assert open_ids(w) == {"s"}
    assert (w.models[A].waiting, w.models[A].in_flight) == (1, 0)
    assert w.models[A].last_used_at_s == 110.0


def test_a_waiting_request_that_it_no_longer_counts_has_ended():
    w = fold_beat(two_of_a(), beat(110.0, in_flight={A: 1}))
    assert open_ids(w) == {"r"}
    assert (w.models[A].waiting, w.models[A].in_flight) == (0, 1)


def test_the_oldest_of_several_goes_first():
    w = after(two_of_a(), received("t", A, 103.0))
    assert open_ids(fold_beat(w, beat(110.0, in_flight={A: 1}, waiting={A: 1}))) == {"r", "t"}


def test_a_request_younger_than_the_grace_may_not_have_been_counted_yet():
    w = two_of_a()
    assert open_ids(fold_beat(w, beat(101.0 + BEAT_GRACE_S))) == {"r", "s"}
    assert open_ids(fold_beat(w, beat(102.0 + BEAT_GRACE_S + 0.5))) == {"r"}


def test_a_beat_that_overtakes_the_word_that_a_request_was_sent_ends_nothing():
    # at 101 s a request waits for a load; at 120 s it is sent, and the beat tells it first
    w = after(world(model(A)), received("r", A, 101.0))
    w = fold_beat(w, beat(120.0, in_flight={A: 1}))
    assert open_ids(w) == {"r"}
    w = fold(w, dispatched("r", A, 119.9))
    assert (w.models[A].waiting, w.models[A].in_flight) == (0, 1)
    w = fold(w, completed("r", A, 125.0))
    assert (w.models[A].waiting, w.models[A].in_flight) == (0, 0)


def test_other_gateways_requests_are_none_of_its_business():
    w = after(two_of_a(), received("u", B, 101.0, "gw2"))
    assert open_ids(fold_beat(w, beat(110.0))) == {"u"}
    assert open_ids(fold_beat(w, beat(110.0, gateway="gw3"))) == {"r", "s", "u"}


def test_the_last_beat_ends_all_of_its_requests_whatever_it_counts():
    w = after(two_of_a(), received("u", B, 101.0, "gw2"))
    w = fold_beat(w, beat(103.0, in_flight={A: 1}, leaving=True))
    assert open_ids(w) == {"u"}
    assert (w.models[A].waiting, w.models[A].in_flight) == (0, 0)


def test_a_gateway_that_is_gone_has_no_requests():
    w = after(two_of_a(), received("u", B, 101.0, "gw2"))
    assert open_ids(drop_gateway(w, "gw", 110.0)) == {"u"}
    assert drop_gateway(w, "gw3", 110.0) is w


def test_what_gateways_may_cancel_is_the_sum_of_all_of_them():
    roster = Roster()
    for gateway, count in (("one", 1), ("two", 2)):
        beat = GatewayBeat(gateway=GatewayId(gateway), at_s=1.0, preemptible={A: count})
        roster = roster.heard(beat)
    counts = roster.preemptible()
    assert counts == {A: 3}
    after = with_preemptible(world(model(A), model(B)), counts)
    assert (after.models[A].preemptible, after.models[B].preemptible) == (3, 0)
    assert with_preemptible(after, counts) is after
    assert with_preemptible(after, {}).models[A].preemptible == 0
