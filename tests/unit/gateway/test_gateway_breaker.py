"""Circuits: when they open, for how long, and who is let through to see."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.gateway.breaker import (
    CLOSED,
    FAILURES,
    MODEL_RULE,
    NODE_RULE,
    TRIAL_REST_S,
    Breakers,
    Circuit,
    Phase,
    Rule,
    Verdict,
    fail,
    phase,
    rest_s,
)
from contracts.ids import ModelId, NodeId

ONE, TWO = NodeId("one"), NodeId("two")
A, B = ModelId("a"), ModelId("b")
RULE = Rule(within_s=10.0, first_open_s=4.0, longest_open_s=10.0)


def sent(breakers, verdict, now_s, *, node=ONE, model=A):
    breakers.end(breakers.begin(node, model, now_s), verdict, now_s)


def failing(breakers, times=FAILURES, now_s=0.0, **where):
    for _ in range(times):
        sent(breakers, Verdict.FAILED, now_s, **where)


def opened(now_s):
    return fail(CLOSED, RULE, now_s, enough=2, weight=2)


class TestCircuit:
    def test_it_opens_after_failures_in_a_row(self):
        once = fail(CLOSED, RULE, 0.0, enough=2)
        assert phase(once, 0.0) is Phase.CLOSED
        twice = fail(once, RULE, 5.0, enough=2)
        assert phase(twice, 5.0) is Phase.OPEN
        assert rest_s(twice, 6.0) == 3.0
        assert phase(twice, 9.0) is Phase.HALF_OPEN
        assert rest_s(twice, 9.0) == 0.0

    def test_failures_far_apart_are_not_in_a_row(self):
        assert (
            phase(fail(fail(CLOSED, RULE, 0.0, enough=2), RULE, 10.1, enough=2), 10.1)
            is Phase.CLOSED
        )

    def test_it_stays_open_longer_each_time(self):
        circuit = opened(0.0)
        for at_s, open_s in ((10.0, 8.0), (20.0, 10.0), (40.0, 10.0)):
            circuit = fail(circuit, RULE, at_s, enough=2)
            assert rest_s(circuit, at_s) == open_s
        assert circuit.openings == 2, "the number does not grow for ever"

    def test_while_a_trial_runs_others_come_back_soon(self):
        circuit = Circuit(open_until_s=5.0, is_on_trial=True)
        assert rest_s(circuit, 5.0) == TRIAL_REST_S

    @given(st.lists(st.floats(0.0, 1e6), min_size=1, max_size=60).map(sorted))
    def test_its_time_is_always_within_the_rule(self, times_s):
        circuit = CLOSED
        for at_s in times_s:
            circuit = fail(circuit, RULE, at_s, enough=2)
            assert 0.0 <= rest_s(circuit, at_s) <= RULE.longest_open_s


class TestBreakers:
    def test_a_model_that_fails_is_not_asked_for_a_while(self):
        breakers = Breakers()
        failing(breakers, 2)
        assert breakers.rest_s(ONE, A, 0.0) == 0.0
        failing(breakers, 1)
        assert breakers.rest_s(ONE, A, 1.0) == MODEL_RULE.first_open_s - 1.0
        assert breakers.phases(1.0) == {(ONE, A): Phase.OPEN}
        assert breakers.opened == {ONE: 1}

    def test_what_took_long_counts_twice(self):
        breakers = Breakers()
        for now_s in (0.0, 1.0):
            assert breakers.rest_s(ONE, A, now_s) == 0.0
            breakers.end(breakers.begin(ONE, A, now_s), Verdict.FAILED, now_s + 1.0)
        assert breakers.rest_s(ONE, A, 2.0) == MODEL_RULE.first_open_s

    def test_others_are(self):
        breakers = Breakers()
        failing(breakers)
        assert breakers.rest_s(ONE, B, 0.0) == 0.0
        assert breakers.rest_s(TWO, A, 0.0) == 0.0

    def test_a_success_between_them_counts(self):
        breakers = Breakers()
        for _ in range(5):
            failing(breakers, 2)
            sent(breakers, Verdict.WORKED, 0.0)
        assert breakers.rest_s(ONE, A, 0.0) == 0.0

    def test_one_silence_is_enough(self):
        breakers = Breakers()
        sent(breakers, Verdict.SILENT, 0.0)
        assert breakers.rest_s(ONE, A, 0.0) == MODEL_RULE.first_open_s

    def test_a_node_that_takes_no_connection_is_not_asked_for_anything(self):
        breakers = Breakers()
        for number in range(FAILURES):
            sent(breakers, Verdict.REFUSED, 0.0, model=ModelId(f"m{number}"))
        assert breakers.rest_s(ONE, B, 0.0) == NODE_RULE.first_open_s
        assert breakers.rest_s(ONE, None, 0.0) == NODE_RULE.first_open_s
        assert breakers.phases(0.0) == {(ONE, None): Phase.OPEN}

    def test_an_answer_of_whatever_kind_shows_that_the_node_is_there(self):
        breakers = Breakers()
        for _ in range(FAILURES):
            sent(breakers, Verdict.REFUSED, 0.0)
            sent(breakers, Verdict.FAILED, 0.0)
        assert breakers.rest_s(ONE, B, 0.0) == 0.0

    def test_without_a_model_only_the_node_is_judged(self):
        breakers = Breakers()
        failing(breakers, 9, model=None)
        assert breakers.rest_s(ONE, None, 0.0) == 0.0

    @pytest.mark.parametrize("verdict", [Verdict.FAILED, Verdict.SILENT])
    def test_a_trial_that_fails_opens_it_again_and_longer(self, verdict):
        breakers = Breakers()
        failing(breakers)
        sent(breakers, verdict, 20.0)
        assert breakers.rest_s(ONE, A, 20.0) == 2 * MODEL_RULE.first_open_s

    def test_one_trial_at_a_time(self):
        breakers = Breakers()
        failing(breakers)
        trial = breakers.begin(ONE, A, 20.0)
        assert breakers.rest_s(ONE, A, 20.0) == TRIAL_REST_S
        beside = breakers.begin(ONE, A, 20.0)
        breakers.end(beside, Verdict.FAILED, 21.0)
        assert breakers.rest_s(ONE, A, 21.0) == TRIAL_REST_S, "who is no trial is no judge"
        breakers.end(trial, Verdict.WORKED, 22.0)
        assert breakers.rest_s(ONE, A, 22.0) == 0.0
        assert not breakers.phases(22.0)

    def test_a_trial_whose_caller_left_leaves_it_to_the_next(self):
        breakers = Breakers()
        failing(breakers)
        trial = breakers.begin(ONE, A, 20.0)
        breakers.end(trial, Verdict.UNJUDGED, 21.0)
        assert breakers.rest_s(ONE, A, 21.0) == 0.0
        assert breakers.phases(21.0) == {(ONE, A): Phase.HALF_OPEN}
        assert breakers.begin(ONE, A, 21.0).tries_model

    def test_callers_that_leave_or_err_open_nothing(self):
        breakers = Breakers()
        for _ in range(20):
            sent(breakers, Verdict.UNJUDGED, 0.0)
        assert not breakers.phases(0.0)

    def test_a_node_is_tried_as_well(self):
        breakers = Breakers()
        for _ in range(FAILURES):
            sent(breakers, Verdict.REFUSED, 0.0)
        trial = breakers.begin(ONE, B, 2.0)
        assert (trial.tries_node, trial.tries_model) == (True, False)
        breakers.end(trial, Verdict.REFUSED, 2.0)
        assert breakers.rest_s(ONE, A, 2.0) == 2 * NODE_RULE.first_open_s

    def test_what_was_sent_before_it_opened_says_nothing(self):
        breakers = Breakers()
        early, late = breakers.begin(ONE, A, 0.0), breakers.begin(ONE, A, 0.0)
        failing(breakers)
        rest_before_s = breakers.rest_s(ONE, A, 1.0)
        breakers.end(early, Verdict.WORKED, 1.0)
        breakers.end(late, Verdict.FAILED, 1.0)
        assert breakers.rest_s(ONE, A, 1.0) == rest_before_s

    def test_it_can_be_switched_off(self):
        breakers = Breakers()
        breakers.failures = 0
        failing(breakers, 50)
        sent(breakers, Verdict.SILENT, 0.0)
        assert not breakers.phases(0.0)

    def test_a_model_that_was_loaded_anew_is_asked_at_once(self):
        breakers = Breakers()
        failing(breakers)
        breakers.forget(ONE, A)
        breakers.forget(ONE, B)
        assert breakers.rest_s(ONE, A, 0.0) == 0.0

    def test_a_node_that_comes_back_is_as_good_as_new(self):
        breakers = Breakers()
        failing(breakers)
        failing(breakers, model=B)
        failing(breakers, node=TWO)
        breakers.forget_node(ONE)
        assert breakers.rest_s(ONE, A, 0.0) == breakers.rest_s(ONE, B, 0.0) == 0.0
        assert breakers.rest_s(TWO, A, 0.0) > 0.0
        assert set(breakers.opened) == {TWO}

    def test_memory_is_bounded(self):
        breakers = Breakers(max_circuits=2)
        for name in "abc":
            failing(breakers, 1, model=ModelId(name))
        assert breakers.forgotten == 1
        failing(breakers, 2, model=ModelId("c"))
        assert breakers.rest_s(ONE, ModelId("c"), 0.0) > 0.0

    def test_a_trial_outlives_its_circuit(self):
        breakers = Breakers(max_circuits=1)
        failing(breakers)
        trial = breakers.begin(ONE, A, 20.0)
        failing(breakers, 1, model=B, now_s=20.0)
        breakers.end(trial, Verdict.UNJUDGED, 21.0)
        assert breakers.rest_s(ONE, A, 21.0) == 0.0

    def test_a_model_whose_loads_fail_is_tried_three_times_a_minute(self):
        breakers = Breakers()
        attempts, now_s, free_at_s = 0, 0.0, 0.0
        while now_s < 60.0:
            if now_s >= free_at_s and not breakers.rest_s(ONE, A, now_s):
                attempts += 1
                free_at_s = now_s + 2.0
                breakers.end(breakers.begin(ONE, A, now_s), Verdict.FAILED, free_at_s)
            now_s += 1.0
        assert attempts == 3
