from __future__ import annotations

from contracts.events import PriorityClass
from contracts.ids import GatewayId
from contracts.messages import GatewayBeat
from controller import roster as roster_module
from controller.roster import GONE_AFTER_S, DrainVerdict, Roster, gone_after_s
from tests.worlds import A, B


def beat(gateway="gw", at_s=100.0, **fields):
    return GatewayBeat(gateway=GatewayId(gateway), at_s=at_s, **fields)


def heard(*beats):
    roster = Roster()
    for one in beats:
        roster = roster.heard(one)
    return roster


def test_the_newest_beat_of_each_gateway_counts():
    roster = heard(beat(at_s=100.0), beat("gw2", 100.0), beat(at_s=101.0))
    assert {name: one.at_s for name, one in roster.beats.items()} == {"gw": 101.0, "gw2": 100.0}


def test_a_late_beat_changes_nothing():
    roster = heard(beat(at_s=101.0))
    assert roster.heard(beat(at_s=100.0)) is roster


def test_beats_of_one_moment_are_taken_in_the_order_they_come():
    assert heard(beat(), beat(drains=("d",))).beats[GatewayId("gw")].drains == ("d",)


def test_a_gateway_that_leaves_is_gone():
    assert heard(beat(), beat("gw2"), beat(leaving=True)).beats.keys() == {"gw2"}
    assert heard(beat(leaving=True)).beats == {}


def test_past_the_bound_new_gateways_are_not_taken_in_and_known_ones_go_on(monkeypatch):
    monkeypatch.setattr(roster_module, "MAX_GATEWAYS", 1)
    roster = heard(beat(at_s=100.0), beat("gw2"), beat(at_s=101.0))
    assert {name: one.at_s for name, one in roster.beats.items()} == {"gw": 101.0}


def test_a_silent_gateway_is_gone_after_three_seconds():
    roster = heard(beat(at_s=100.0), beat("gw2", 102.0))
    assert roster.without_silent(100.0 + GONE_AFTER_S) == (roster, ())
    rest, gone = roster.without_silent(100.5 + GONE_AFTER_S)
    assert (rest.beats.keys(), gone) == ({"gw2"}, ("gw",))


def test_a_gateway_whose_clock_is_wrong_is_as_old_as_its_silence_here():
    roster = Roster().heard(beat(at_s=40.0), 100.0)
    assert roster.without_silent(102.0)[1] == ()
    roster = roster.heard(beat(at_s=39.0, drains=("d",)), 103.0)
    assert roster.beats[GatewayId("gw")].drains == ("d",)
    assert roster.without_silent(105.0)[1] == ()
    assert roster.without_silent(106.5)[1] == ("gw",)


def test_queues_are_summed_by_class():
    queued = {PriorityClass.REALTIME: 2}
    roster = heard(beat(queued=queued), beat("gw2", queued={**queued, PriorityClass.BATCH: 1}))
    assert [(queue.priority, queue.waiting) for queue in roster.queues()] == [
        (PriorityClass.REALTIME, 4),
        (PriorityClass.BATCH, 1),
        (PriorityClass.BACKGROUND, 0),
    ]


def test_a_queue_holds_what_all_gateways_hold_and_its_oldest_is_the_oldest_of_all():
    capacity = {PriorityClass.REALTIME: 10}
    first = beat(capacity=capacity, oldest_queued_s={PriorityClass.REALTIME: 2.5})
    second = beat("gw2", capacity=capacity, oldest_queued_s={PriorityClass.REALTIME: 0.5})
    realtime, batch, _ = heard(first, second).queues()
    assert (realtime.capacity, realtime.oldest_wait_s) == (20, 2.5)
    assert (batch.capacity, batch.oldest_wait_s) == (None, None)
    # One that does not tell how many it holds leaves the sum unknown, not smaller.
    assert heard(first, beat("gw3")).queues()[0].capacity is None


class TestDrain:
    def test_without_a_gateway_it_is_clear(self):
        assert Roster().drain("d", A) is DrainVerdict.CLEAR

    def test_it_waits_for_every_gateway(self):
        roster = heard(beat(drains=("d",)), beat("gw2"))
        assert roster.drain("d", A) is DrainVerdict.WAIT
        assert roster.heard(beat("gw2", drains=("d",))).drain("d", A) is DrainVerdict.CLEAR

    def test_one_that_acknowledged_and_is_busy_ends_it(self):
        roster = heard(beat("gw1"), beat("gw2", drains=("d",), in_flight={A: 1}), beat("gw3"))
        assert roster.drain("d", A) is DrainVerdict.BUSY

    def test_other_models_and_other_drains_do_not_count(self):
        roster = heard(beat(drains=("d", "e"), in_flight={B: 1}))
        assert roster.drain("d", A) is DrainVerdict.CLEAR
        assert roster.drain("f", A) is DrainVerdict.WAIT

    def test_one_that_is_busy_but_has_not_acknowledged_is_waited_for(self):
        assert heard(beat(in_flight={A: 1})).drain("d", A) is DrainVerdict.WAIT


def test_on_a_fast_clock_a_gateway_may_be_silent_for_a_real_second():
    assert (gone_after_s(1.0), gone_after_s(30.0)) == (GONE_AFTER_S, 30.0)
