"""The rules on workloads so small that every wait can be worked out by hand.

A model of 10 MB loads in 10 s where nothing else is said; times are seconds.
"""

from __future__ import annotations

import pytest

from contracts.errors import Invalid
from contracts.ids import ModelId
from simulator.rules import RULES, safe_model_limit
from simulator.simulation import Simulation
from simulator.workloads import Arrival, Workload, WorkloadModel

pytestmark = pytest.mark.simulation

A, B, C, D = (ModelId(name) for name in "abcd")


def spec(name, mb=10, load_s=10.0, parallel=1, slo_s=2.0):
    return WorkloadModel(model=name, size_mb=mb, load_s=load_s, parallel=parallel, slo_s=slo_s)


def workload(*arrivals, models=()):
    """Arrivals as (time, model, service time)."""
    given = {one.model: one for one in models}
    named = {name: given.get(name) or spec(name) for _, name, _ in arrivals}
    ordered = tuple(Arrival(*one) for one in sorted(arrivals))
    return Workload(name="hand", models={**given, **named}, arrivals=ordered)


def run(rule, mb, *arrivals, models=()):
    load = workload(*arrivals, models=models)
    simulation = Simulation(load, mb, RULES[rule](load, mb), check_memory=rule != "localai-lru")
    simulation.run()
    return simulation


def waits(simulation):
    return [outcome.wait_s for outcome in simulation.outcomes]


def colds(simulation):
    return [outcome.cold for outcome in simulation.outcomes]


class TestOneModel:
    def test_the_first_request_waits_for_the_load_and_later_ones_do_not(self):
        played = run("lru", 10, (0.0, A, 1.0), (20.0, A, 1.0))
        assert waits(played) == [10.0, 0.0]
        assert colds(played) == [True, False]
        assert played.tally.loads == 1

    def test_requests_during_the_load_are_cold_and_share_it(self):
        played = run("lru", 10, (0.0, A, 1.0), (4.0, A, 1.0), (9.0, A, 1.0))
        # one slot: served at 10, 11 and 12
        assert waits(played) == [10.0, 7.0, 3.0]
        assert colds(played) == [True, True, True]
        assert played.tally.loads == 1

    def test_a_slot_is_held_for_the_service_time_first_in_first_out(self):
        played = run("lru", 10, (0.0, A, 1.0), (20.0, A, 5.0), (21.0, A, 5.0), (22.0, A, 5.0))
        assert waits(played) == [10.0, 0.0, 4.0, 8.0]

    def test_as_many_at_once_as_there_are_slots(self):
        two = spec(A, parallel=2)
        arrivals = [(20.0 + n, A, 5.0) for n in range(3)]
        played = run("lru", 10, (0.0, A, 1.0), *arrivals, models=[two])
        assert waits(played) == [10.0, 0.0, 0.0, 3.0]

    def test_a_request_at_the_moment_the_load_ends_was_there_before(self):
        # arrivals of an instant come before the end of a load
        played = run("lru", 10, (0.0, A, 1.0), (10.0, A, 1.0))
        assert colds(played) == [True, True]
        assert waits(played) == [10.0, 1.0]

    def test_deterministic_service_at_a_steady_rate(self):
        # a request each 2 s, served in 3 s by one slot: each waits a second longer
        played = run("lru", 10, *[(2.0 * n, A, 3.0) for n in range(20)])
        assert waits(played) == [10.0 + n for n in range(20)]

    def test_memory_is_held_from_the_start_of_the_load_to_the_end(self):
        played = run("lru", 10, (5.0, A, 1.0))
        assert played.tally.held_mb_s == 10 * 11.0


class TestTwoThatDoNotFit:
    def test_each_turn_is_a_load(self):
        played = run("lru", 10, *[(20.0 * n, name, 1.0) for n, name in enumerate([A, B, A, B])])
        assert waits(played) == [10.0] * 4
        assert (played.tally.loads, played.tally.unloads) == (4, 3)

    def test_a_busy_model_is_not_evicted_for_another(self):
        # a serves until 30; only then may b load, until 40
        played = run("lru", 10, (0.0, A, 20.0), (12.0, B, 1.0))
        assert waits(played) == [10.0, 28.0]

    def test_requests_that_come_meanwhile_keep_it_busy(self):
        # b waits from 12; a's second request (service 10..30, then 30..35) goes first
        played = run("lru", 10, (0.0, A, 20.0), (12.0, B, 1.0), (29.0, A, 5.0))
        assert waits(played) == [10.0, 35.0 + 10.0 - 12.0, 1.0]


class TestTwoLoadSlots:
    def test_two_load_side_by_side_and_the_third_after_the_first(self):
        played = run("lru", 30, (0.0, A, 1.0), (1.0, B, 1.0), (2.0, C, 1.0))
        # a until 10, b until 11, c from 10 until 20
        assert waits(played) == [10.0, 10.0, 18.0]

    def test_waiting_loads_start_in_the_order_in_which_they_came(self):
        quick = [spec(n, load_s=s) for n, s in ((A, 10.0), (B, 10.0), (C, 1.0), (D, 1.0))]
        arrivals = [(0.0, A, 1.0), (0.5, B, 1.0), (1.0, D, 1.0), (2.0, C, 1.0)]
        played = run("lru", 40, *arrivals, models=quick)
        # one slot is free at 10: d until 11; at 10.5 the other: c until 11.5
        assert waits(played) == [10.0, 10.0, 10.0, 9.5]

    def test_a_newcomer_that_fits_does_not_wait_for_those_that_do_not(self):
        # a is busy until 40 and holds half of 20 MB, so d (20 MB) waits; c comes and fits
        arrivals = [(0.0, A, 30.0), (11.0, D, 1.0), (12.0, C, 1.0)]
        played = run("lru", 20, *arrivals, models=[spec(D, mb=20)])
        assert waits(played) == [10.0, 40.0 + 10.0 - 11.0, 10.0]

    def test_of_those_that_wait_none_overtakes_the_first(self):
        # as above, and b comes at 13 when 20 MB are full. At 23 c is idle: d takes it, which is
        # not enough, and b, which would fit now, is not tried. d loads at 40, b at 51.
        arrivals = [(0.0, A, 30.0), (11.0, D, 1.0), (12.0, C, 1.0), (13.0, B, 1.0)]
        played = run("lru", 20, *arrivals, models=[spec(D, mb=20)])
        assert waits(played) == [10.0, 39.0, 10.0, 51.0 + 10.0 - 13.0]

    def test_one_that_goes_may_let_two_start(self):
        # a holds all of 20 MB until 40; then b and c load side by side
        arrivals = [(0.0, A, 30.0), (11.0, B, 1.0), (12.0, C, 1.0)]
        played = run("lru", 20, *arrivals, models=[spec(A, mb=20)])
        assert waits(played) == [10.0, 40.0 + 10.0 - 11.0, 40.0 + 10.0 - 12.0]

    def test_a_demand_that_finds_no_slot_evicts_nothing_yet(self):
        models = [spec(A, load_s=1.0)]
        arrivals = [(0.0, A, 1.0), (5.0, B, 1.0), (6.0, C, 1.0), (7.0, D, 1.0), (8.0, A, 1.0)]
        played = run("lru", 30, *arrivals, models=models)
        # at 7 both slots are taken, so a is still there at 8 and served at once
        assert waits(played)[4] == 0.0
        assert waits(played)[3] == 15.0 + 10.0 - 7.0


class TestLru:
    def test_the_least_recently_used_goes(self):
        arrivals = [(0.0, A, 1.0), (20.0, B, 1.0), (40.0, A, 1.0), (60.0, C, 1.0), (80.0, A, 1.0)]
        played = run("lru", 20, *arrivals, (100.0, B, 1.0))
        assert waits(played) == [10.0, 10.0, 0.0, 10.0, 0.0, 10.0]

    def test_one_after_the_other_goes_until_it_fits_and_stays_gone_where_it_does_not(self):
        # 30 MB: a idle, b busy until 60; d of 25 MB cannot start although a has gone for it
        arrivals = [(0.0, A, 1.0), (1.0, B, 49.0), (20.0, D, 1.0), (30.0, A, 1.0)]
        played = run("lru", 30, *arrivals, models=[spec(D, mb=25)])
        assert waits(played) == [10.0, 10.0, 60.0 + 10.0 - 20.0, 10.0]
        # for a again at 41, when it is idle once more, and in vain once more
        assert (played.tally.loads, played.tally.unloads) == (4, 3)


class TestLocalAILru:
    def test_it_counts_models_and_does_not_look_at_memory(self):
        # sizes 10, 10, 20, 20 in 40 MB: two of the largest fit, so two may stay
        models = [spec(C, mb=20), spec(D, mb=20)]
        load = workload((0.0, A, 1.0), models=[spec(A), spec(B), *models])
        assert safe_model_limit(load, 40) == 2
        arrivals = [(0.0, A, 1.0), (20.0, B, 1.0), (40.0, C, 1.0), (60.0, A, 1.0)]
        played = run("localai-lru", 40, *arrivals, models=models)
        # memory would hold a, b and c, the limit lets a go
        assert colds(played) == [True, True, True, True]

    def test_a_capacity_below_the_largest_is_refused(self):
        with pytest.raises(Invalid, match="19 MB does not hold the largest"):
            run("localai-lru", 19, (0.0, A, 1.0), models=[spec(A, mb=20)])


class TestIdleTimeout:
    def test_after_900_s_without_use_it_is_unloaded(self):
        played = run("idle-timeout", 10, (0.0, A, 1.0), (911.0, A, 1.0), (1813.0, A, 1.0))
        # last used at 11: still there at 911 (the arrival comes first), gone at 1812
        assert colds(played) == [True, False, True]
        assert played.tally.unloads == 1

    def test_a_model_in_use_stays_however_long(self):
        played = run("idle-timeout", 10, (0.0, A, 2000.0), (1500.0, A, 1.0))
        assert colds(played) == [True, False]

    def test_a_use_starts_the_time_anew(self):
        played = run("idle-timeout", 10, (0.0, A, 1.0), (900.0, A, 1.0), (1800.0, A, 1.0))
        assert colds(played) == [True, False, False]

    def test_the_room_it_leaves_goes_to_whoever_waits(self):
        played = run("idle-timeout", 20, (0.0, A, 1.0), (0.0, B, 1.0), (2000.0, C, 1.0))
        assert waits(played) == [10.0, 10.0, 10.0]
        assert played.tally.unloads == 2


class TestGdsf:
    def test_the_least_frequent_dear_and_small_goes(self):
        # H = count x 10 / 10: a 2, b 1; c makes b go although a was used longer ago
        arrivals = [(0.0, A, 1.0), (20.0, A, 1.0), (40.0, B, 1.0), (60.0, C, 1.0), (80.0, A, 1.0)]
        played = run("gdsf", 20, *arrivals)
        assert colds(played) == [True, False, True, True, False]

    def test_a_model_that_is_slow_to_load_stays(self):
        models = [spec(A, load_s=30.0)]
        arrivals = [(0.0, A, 1.0), (40.0, B, 1.0), (60.0, C, 1.0), (80.0, A, 1.0)]
        assert not colds(run("gdsf", 20, *arrivals, models=models))[3]

    @pytest.mark.parametrize(("others", "cold"), [("bcd", False), ("bcdefgh", True)])
    def test_the_past_fades_by_what_was_evicted(self, others, cold):
        # a was asked for three times: H 3. Each passer-by has L + 1, and L is the H of the last
        # that was evicted: 1 (b), 1 (c), 2 (d), 2 (e). So f has 3 as well, and when g comes a
        # goes, by its name.
        names = [A, A, A, *map(ModelId, others), A]
        played = run("gdsf", 20, *[(20.0 * n, name, 1.0) for n, name in enumerate(names)])
        assert colds(played)[-1] is cold


class TestBelady:
    def test_what_is_needed_last_goes(self):
        arrivals = [(0.0, A, 1.0), (20.0, B, 1.0), (40.0, C, 1.0), (60.0, A, 1.0), (80.0, B, 1.0)]
        played = run("belady", 20, *arrivals)
        # at 40 b is needed at 80 and a at 60: b goes; at 80 c is never needed again
        assert colds(played) == [True, True, True, False, True]

    def test_it_never_loads_ahead(self):
        played = run("belady", 20, (0.0, A, 1.0), (100.0, B, 1.0))
        assert waits(played) == [10.0, 10.0]
        assert played.tally.prefetches == 0


class TestOracle:
    def test_it_loads_ahead_of_what_comes(self):
        played = run("oracle", 20, (0.0, A, 1.0), (100.0, B, 1.0))
        assert waits(played) == [10.0, 0.0]
        tally = played.tally
        assert (tally.loads, tally.prefetches, tally.prefetches_used) == (2, 1, 1)

    def test_no_sooner_than_the_load_and_32_s_before(self):
        # looked at each second from 1: b comes at 100, so its load starts at 58
        played = run("oracle", 20, (0.0, A, 1.0), (100.0, B, 1.0), (500.0, A, 1.0))
        assert played.tally.held_mb_s == 10 * (501.0 - 0.0) + 10 * (501.0 - 58.0)

    def test_it_looks_each_second_counted_from_the_first_request(self):
        played = run("oracle", 20, (0.25, A, 1.0), (100.0, B, 1.0), (500.0, A, 1.0))
        assert played.tally.held_mb_s == 10 * (501.0 - 0.25) + 10 * (501.0 - 58.25)

    def test_never_beside_another_load(self):
        # until 10 a loads; then b and c follow one after the other
        played = run("oracle", 30, (0.0, A, 1.0), (15.0, B, 1.0), (16.0, C, 1.0))
        # b from 10 until 20, where c (demanded at 16) has taken the second slot until 26
        assert waits(played) == [10.0, 5.0, 10.0]

    def test_it_evicts_only_what_is_needed_later_than_the_load_pays(self):
        # a comes back at 105, sooner than b's 100 + 10: a stays and b loads on demand
        played = run("oracle", 10, (0.0, A, 1.0), (100.0, B, 1.0), (105.0, A, 1.0))
        assert played.tally.prefetches == 0
        # a comes back at 120: a goes for b, and again at 111 for its own turn
        played = run("oracle", 10, (0.0, A, 1.0), (100.0, B, 1.0), (120.0, A, 1.0))
        assert waits(played)[1] == 0.0

    def test_it_evicts_no_more_than_it_needs_and_nothing_where_that_is_not_enough(self):
        models = [spec(D, mb=25)]
        arrivals = [(0.0, A, 1.0), (1.0, B, 100.0), (90.0, D, 1.0), (200.0, A, 1.0)]
        played = run("oracle", 30, *arrivals, models=models)
        # b is busy until 111, so d (25 MB) cannot be prefetched and a is not evicted for it
        assert played.tally.prefetches <= 1
        assert waits(played)[2] == pytest.approx(111.0 + 10.0 - 90.0)


def test_a_model_larger_than_the_memory_is_refused():
    with pytest.raises(Invalid, match="capacity of 9 MB does not hold a"):
        run("lru", 9, (0.0, A, 1.0))


def test_a_workload_without_requests_is_refused():
    empty = Workload(name="none", models={A: spec(A)}, arrivals=())
    with pytest.raises(Invalid, match="no request"):
        Simulation(empty, 10, RULES["lru"](empty, 10))
