"""How LocalAI loads and serves, in virtual time: each test is a short story."""

from __future__ import annotations

import pytest

from simulator.localai_core import MAX_UNKNOWN_NAMES
from simulator.localai_effects import (
    Done,
    Record,
    RecordKind,
    RefusalKind,
    Refused,
    Started,
    StopCause,
)
from simulator.localai_state import ModelFaults, cooldown_s
from tests.localai_stage import answers, kinds, machine, make_hot, refusal, run_until, started_at

# Loads


def test_a_cold_request_waits_for_two_seconds_of_start_and_the_weights():
    made = machine()
    effects = made.infer(1, "a", 0.0)
    assert kinds(effects) == ["request_received", "load_started"]
    assert made.next_wake_s() == 2.0
    assert answers(made.advance(2.0)) == []
    assert made.next_wake_s() == 6.0
    effects = made.advance(6.0)
    assert answers(effects) == [Started(caller=1, cold=True)]
    assert kinds(effects) == ["load_ended", "request_started"]
    assert kinds(made.finish(1, 7.0)) == ["request_ended"]
    # hot now: the next one starts at once
    assert answers(made.infer(2, "a", 8.0)) == [Started(caller=2, cold=False)]


def test_a_late_driver_does_not_stretch_a_load():
    made = machine()
    made.infer(1, "a", 0.0)
    effects = made.advance(6.5)  # the start was due at 2, the end at 6
    assert Record(kind=RecordKind.LOAD_ENDED, at_s=6.0, model="a", caller=1) in effects


def test_an_exact_load_takes_what_the_model_says():
    made = machine(exact=True)
    made.infer(1, "a", 1.0)
    assert started_at(run_until(made, 100.0), 1) == 5.0


def test_one_load_serves_all_who_wait_and_slots_are_given_in_their_order():
    made = machine(parallel=2)
    for caller in (1, 2, 3):
        made.infer(caller, "a", 0.1 * caller)
    happened = run_until(made, 10.0)
    started = [e.caller for _, e in happened if isinstance(e, Started)]
    assert started == [1, 2]
    assert [e.kind for _, e in happened if isinstance(e, Record)].count(RecordKind.LOAD_ENDED) == 1
    assert answers(made.finish(1, 11.0)) == [Started(caller=3, cold=True)]


def test_different_models_load_side_by_side():
    made = machine()
    made.infer(1, "a", 0.0)
    made.infer(2, "b", 0.5)
    happened = run_until(made, 20.0)
    assert started_at(happened, 1) == 6.0
    assert started_at(happened, 2) == 6.5


def test_a_load_order_is_done_when_the_model_is_hot_and_at_once_when_it_is_already():
    made = machine()
    made.load(1, "a", 0.0)
    assert [e for _, e in run_until(made, 6.0) if isinstance(e, Done)] == [Done(caller=1)]
    assert answers(made.load(2, "a", 7.0)) == [Done(caller=2)]


def test_the_leader_leaving_ends_the_load_and_the_next_begins_it_anew():
    # as recorded: 4 s of weights, the first leaves 1.5 s into them, the second waits 9.6 s
    made = machine()
    made.infer(1, "a", 0.0)
    made.infer(2, "a", 0.1)
    made.advance(2.0)
    effects = made.leave(1, 3.6)
    assert kinds(effects) == ["caller_left", "load_cancelled", "load_started"]
    assert started_at(run_until(made, 60.0), 2) == pytest.approx(9.6)


def test_a_follower_leaving_does_not_touch_the_load():
    made = machine()
    made.infer(1, "a", 0.0)
    made.infer(2, "a", 0.1)
    made.advance(2.0)
    assert kinds(made.leave(2, 3.0)) == ["caller_left"]
    assert started_at(run_until(made, 60.0), 1) == 6.0
    assert kinds(made.finish(1, 7.0)) == ["request_ended"]


def test_ten_wait_and_nine_leave_each_who_left_costs_a_process_start():
    made = machine()
    for caller in range(10):
        made.infer(caller, "a", 0.0)
    made.advance(2.0)
    for caller in range(9):
        made.leave(caller, 3.0)
    happened = run_until(made, 100.0)
    cancelled = [e for _, e in happened if getattr(e, "kind", None) == RecordKind.LOAD_CANCELLED]
    assert len(cancelled) == 8  # the first fell at once
    assert started_at(happened, 9) == 3.0 + 8 * 2.0 + 2.0 + 4.0


def test_ten_wait_and_nine_leave_with_exact_times_no_process_start_is_counted():
    made = machine(exact=True)
    for caller in range(10):
        made.infer(caller, "a", 0.0)
    for caller in range(9, 0, -1):
        made.leave(caller, 1.0)
    made.infer(10, "a", 1.5)
    made.leave(0, 2.0)
    assert started_at(run_until(made, 100.0), 10) == 6.0
    assert made.leave(0, 3.0) == ()


def test_a_leader_that_leaves_while_the_process_starts_is_noticed_at_the_weights():
    made = machine()
    made.infer(1, "a", 0.0)
    assert kinds(made.leave(1, 1.0)) == ["caller_left"]
    assert made.leave(1, 1.1) == ()  # once is enough
    assert kinds(made.advance(2.0)) == ["load_cancelled"]
    assert made.cooldown_left_s("a", 2.0) == 10.0


def test_a_load_that_its_callers_left_counts_as_failed():
    made = machine()
    made.infer(1, "a", 0.0)
    made.advance(2.0)
    made.leave(1, 3.0)
    refused = refusal(made.infer(2, "a", 6.0), 2)
    assert refused.kind is RefusalKind.COOLDOWN
    assert refused.retry_after_s == pytest.approx(7.0)
    assert made.cluster.used_bytes == 0


def test_cool_downs_double_up_to_five_minutes():
    assert [cooldown_s(failures) for failures in range(1, 8)] == [10, 20, 40, 80, 160, 300, 300]
    assert cooldown_s(5000) == 300.0
    made = machine()
    made.set_faults("a", ModelFaults(load_failures=2, load_error="no memory"))
    now_s = 0.0
    for expected_s in (10.0, 20.0):
        made.infer(1, "a", now_s)
        refused = refusal(run_until(made, now_s + 6.0), 1)
        assert (refused.kind, refused.message) == (RefusalKind.LOAD_FAILED, "no memory")
        assert made.cooldown_left_s("a", now_s + 6.0) == expected_s
        now_s += 6.0 + expected_s
    make_hot(made, "a", now_s)
    assert made.cooldown_left_s("a", now_s) == 0.0
    assert made.faults("a").load_failures == 0


def test_a_success_forgets_earlier_failures():
    made = machine()
    made.set_faults("a", ModelFaults(load_failures=1))
    made.infer(1, "a", 0.0)
    run_until(made, 6.0)
    make_hot(made, "a", 16.0)
    made.stop(2, "a", 30.0)
    run_until(made, 31.0)
    made.set_faults("a", ModelFaults(load_failures=1))
    made.infer(3, "a", 40.0)
    run_until(made, 46.0)
    assert made.cooldown_left_s("a", 46.0) == 10.0


def test_those_who_wait_on_a_failing_load_each_fail_with_their_own():
    made = machine(exact=True)
    made.set_faults("a", ModelFaults(load_failures=5))
    made.infer(1, "a", 0.0)
    made.infer(2, "a", 1.0)
    happened = run_until(made, 100.0)
    times = [at_s for at_s, effect in happened if isinstance(effect, Refused)]
    assert times == [4.0, 8.0]


def test_an_unknown_name_is_tried_then_cools_down():
    made = machine(unknown_error="no file {model}")
    made.load(1, "nope", 0.0)
    refused = refusal(run_until(made, 5.0), 1)
    assert refused.message == "no file nope"
    assert refusal(made.load(2, "nope", 5.0), 2).kind is RefusalKind.COOLDOWN
    assert not made.is_hot("nope")
    assert made.cooldown_left_s("never heard of", 5.0) == 0.0


def test_names_that_are_no_models_are_forgotten_beyond_a_bound():
    made = machine(exact=True)
    make_hot(made, "a", 0.0)
    for number in range(MAX_UNKNOWN_NAMES + 50):
        made.load(number, f"junk-{number}", 0.0)
    assert len(made._states) <= MAX_UNKNOWN_NAMES + 5
    assert made.is_hot("a")


def test_a_load_that_does_not_fit_fails_for_lack_of_memory():
    made = machine(capacity_bytes=15, memory_error="out of memory")
    make_hot(made, "a", 0.0)
    made.infer(1, "b", 10.0)
    refused = refusal(run_until(made, 20.0), 1)
    assert refused.message == "out of memory"
    assert made.cluster.used_bytes == 10


def test_faults_make_loads_slow_or_endless():
    made = machine(exact=True)
    made.set_faults("a", ModelFaults(load_factor=2.0, load_extra_s=1.0))
    made.infer(1, "a", 0.0)
    assert started_at(run_until(made, 100.0), 1) == 9.0
    made.set_faults("b", ModelFaults(load_hangs=True))
    made.infer(2, "b", 0.0)
    assert made.next_wake_s() is None
    assert kinds(made.leave(2, 50.0)) == ["caller_left", "load_cancelled"]


def test_what_hung_goes_on_when_its_fault_is_over():
    made = machine(exact=True)
    made.set_faults("a", ModelFaults(load_hangs=True))
    made.load(1, "a", 0.0)
    assert answers(made.resume(50.0)) == []
    made.set_faults("a", ModelFaults())
    made.resume(60.0)
    assert [at_s for at_s, effect in run_until(made, 100.0) if isinstance(effect, Done)] == [64.0]
    made.set_faults("a", ModelFaults(unload_hangs=True))
    made.stop(2, "a", 110.0)
    assert answers(made.resume(120.0)) == []
    made.set_faults("a", ModelFaults())
    assert Done(caller=2) in answers(made.resume(130.0))
    assert made.cluster.is_cold("a")


def test_a_stop_that_hung_waits_for_what_runs_when_it_goes_on():
    made = machine(exact=True)
    hot_s = make_hot(made, "a", 0.0)
    made.infer(1, "a", hot_s)
    made.set_faults("a", ModelFaults(unload_hangs=True))
    made.stop(2, "a", hot_s + 1.0)
    made.set_faults("a", ModelFaults())
    assert answers(made.resume(hot_s + 2.0)) == []
    assert Done(caller=2) in answers(made.finish(1, hot_s + 3.0))


def test_a_cool_down_can_be_ordered():
    made = machine()
    made.cool_down("a", 25.0, 100.0)
    assert refusal(made.infer(1, "a", 110.0), 1).retry_after_s == 15.0


# Requests


def test_a_caller_that_leaves_frees_its_slot_at_once():
    made = machine()
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.infer(2, "a", 10.0)
    effects = made.leave(1, 11.0)
    assert kinds(effects) == ["caller_left", "request_started"]
    assert answers(effects) == [Started(caller=2, cold=False)]
    assert made.leave(1, 12.0) == ()


def test_a_caller_that_leaves_the_queue_is_gone():
    made = machine()
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.infer(2, "a", 10.0)
    assert kinds(made.leave(2, 11.0)) == ["caller_left"]
    assert made.cluster.waiting("a") == 0
    assert answers(made.finish(1, 12.0)) == []


# Configuration


def test_a_forgotten_model_has_no_past():
    made = machine()
    made.cool_down("a", 100.0, 0.0)
    made.forget("a")
    assert made.cooldown_left_s("a", 1.0) == 0.0


def test_a_restart_remembers_nothing_and_tells_its_callers_nothing():
    made = machine(capacity_bytes=30)
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 70.0)
    made.load(2, "b", 71.0)
    made.infer(3, "b", 71.5)
    made.leave(3, 72.0)
    effects = made.restart(73.0)
    assert refusal(effects, 1).kind is RefusalKind.BROKEN
    assert refusal(effects, 2).kind is RefusalKind.BROKEN
    assert not any(isinstance(one, Refused) and one.caller == 3 for one in effects)
    records = {(one.kind, one.model, one.cause) for one in effects if isinstance(one, Record)}
    assert (RecordKind.UNLOADED, "a", StopCause.RESTART) in records
    assert (RecordKind.LOAD_CANCELLED, "b", StopCause.RESTART) in records
    assert made.listed() == ()
    make_hot(made, "b", 80.0)
