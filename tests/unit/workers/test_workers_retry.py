"""What follows from a failed run: pure, so a table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contracts.errors import Busy, Invalid, NotLeader, Permanent, Transient
from workers.retry import (
    Attempts,
    Held,
    RetryPolicy,
    Stopped,
    Turn,
    Verdict,
    decide,
)

FRESH = Attempts()
POLICY = RetryPolicy(max_failures=3, max_refusals=5, first_s=2.0, longest_s=60.0, max_age_s=3600.0)


def _decide(error, attempts=FRESH, age_s=0.0):
    return decide(error, attempts=attempts, age_s=age_s, policy=POLICY)


def test_a_stop_puts_back_at_once_and_costs_nothing_however_old_the_job_is():
    decision = _decide(Stopped("the worker stops"), Attempts(failures=2), age_s=1e9)
    assert (decision.verdict, decision.after_s) == (Verdict.PUT_BACK, 0.0)
    assert decision.attempts == Attempts(failures=2)


def test_a_held_job_comes_back_when_it_was_told_and_is_no_failure():
    decision = _decide(Held("not_resident", after_s=7.5), Attempts(holds=4))
    assert (decision.verdict, decision.after_s) == (Verdict.PUT_BACK, 7.5)
    assert decision.attempts == Attempts(holds=5)


def test_a_job_that_had_its_turn_waits_behind_the_others_and_is_no_failure():
    decision = _decide(Turn("other batches wait", after_s=3.0), Attempts(failures=2), age_s=1e9)
    assert (decision.verdict, decision.after_s) == (Verdict.RETRY, 3.0)
    assert decision.attempts == Attempts(failures=2)


@pytest.mark.parametrize("error", [Invalid("bad path"), Permanent("404: no such model")])
def test_what_cannot_pass_ends_the_job_with_its_reason(error):
    decision = _decide(error)
    assert (decision.verdict, decision.reason) == (Verdict.GIVE_UP, str(error))


def test_failures_wait_longer_each_time_and_end():
    waits, attempts = [], Attempts()
    while (decision := _decide(Transient("500"), attempts)).verdict is Verdict.RETRY:
        waits.append(decision.after_s)
        attempts = decision.attempts
    assert waits == [2.0, 4.0]
    assert decision.verdict is Verdict.GIVE_UP
    assert decision.reason == "failed 3 times, at last: 500"


def test_a_refusal_with_a_time_waits_at_least_that_long_and_is_no_failure():
    decision = _decide(Transient("429", retry_after_s=30.0), Attempts(failures=2))
    assert (decision.verdict, decision.after_s) == (Verdict.RETRY, 30.0)
    assert decision.attempts == Attempts(failures=2, refusals=1)


def test_refusals_for_ever_end_too():
    decision = _decide(Transient("cool-down", retry_after_s=1.0), Attempts(refusals=4))
    assert decision.verdict is Verdict.GIVE_UP
    assert decision.reason == "refused 5 times, at last: cool-down"


def test_repeated_refusals_wait_longer_than_they_were_told():
    assert _decide(Transient("x", retry_after_s=1.0), Attempts(refusals=3)).after_s == 16.0


@pytest.mark.parametrize("error", [Transient("away"), Held("no_room", after_s=5.0)])
def test_a_job_that_is_too_old_is_not_begun_again(error):
    decision = _decide(error, age_s=3600.0)
    assert decision.verdict is Verdict.GIVE_UP
    assert decision.reason.startswith("not done within 1.0 h, at last: ")


@pytest.mark.parametrize("error", [Busy("busy"), NotLeader("lost")])
def test_every_passing_error_is_tried_again(error):
    assert _decide(error).verdict is Verdict.RETRY


@given(
    failures=st.integers(0, 10**6),
    refusals=st.integers(0, 10**6),
    retry_after_s=st.none() | st.floats(0, 1e12),
    age_s=st.floats(0, 1e9),
)
def test_waits_are_finite_and_bounded(failures, refusals, retry_after_s, age_s):
    policy = RetryPolicy(max_failures=10**7, max_refusals=10**7)
    decision = decide(
        Transient("x", retry_after_s=retry_after_s),
        attempts=Attempts(failures=failures, refusals=refusals),
        age_s=age_s,
        policy=policy,
    )
    assert 0.0 <= decision.after_s <= policy.max_age_s
    assert (decision.verdict is Verdict.GIVE_UP) == (age_s >= policy.max_age_s)
