"""What makes LocalAI stop a model: its limit, an order, its idle watchdog."""

from __future__ import annotations

import math

import pytest

from simulator.localai_effects import Done, Record, RecordKind, RefusalKind, Started, StopCause
from simulator.localai_state import ModelFaults
from tests.localai_stage import answers, kinds, machine, make_hot, refusal, run_until, started_at

# The limit


def test_the_least_recently_used_idle_model_goes():
    # as recorded: chats with a, b, a, c in turn at a limit of 2: b goes
    made = machine(model_limit=2, exact=True)
    make_hot(made, "a", 0.0)
    make_hot(made, "b", 10.0)
    made.infer(1, "a", 20.0)
    made.finish(1, 21.0)
    effects = made.infer(2, "c", 30.0)
    assert Record(kind=RecordKind.UNLOADED, at_s=30.0, model="b", cause=StopCause.LIMIT) in effects
    assert started_at(run_until(made, 60.0), 2) == 34.0
    assert made.listed() == ("a", "c")


def test_evicting_takes_a_moment():
    made = machine(model_limit=1)
    make_hot(made, "a", 0.0)
    made.infer(1, "b", 10.0)
    assert started_at(run_until(made, 60.0), 1) == pytest.approx(16.1)


def test_a_busy_model_is_waited_for_in_steps_of_a_second():
    # as recorded: busy until 4.12, asked at 0.5, the load begins at 4.5
    made = machine(model_limit=2, exact=True)
    make_hot(made, "a", 0.0)
    make_hot(made, "b", 0.0)
    made.infer(1, "a", 100.0)
    made.infer(2, "b", 100.0)
    made.infer(3, "c", 100.5)
    assert made.cluster.loading() == ()
    run_until(made, 104.12)
    made.finish(1, 104.12)
    assert started_at(run_until(made, 120.0), 3) == 108.5
    assert made.listed() == ("b", "c")


def test_after_thirty_tries_it_loads_over_the_limit():
    made = machine(model_limit=1, exact=True)
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 100.0)
    made.infer(2, "b", 100.0)
    assert started_at(run_until(made, 300.0), 2) == 100.0 + 29.0 + 4.0
    assert made.listed() == ("a", "b")


def test_pinned_models_stay_and_cost_no_waiting():
    made = machine(model_limit=1, exact=True)
    make_hot(made, "a", 0.0)
    made.set_pinned("a", pinned=True)
    assert made.is_pinned("a")
    assert not made.is_pinned("b")
    made.infer(1, "b", 10.0)
    assert started_at(run_until(made, 60.0), 1) == 14.0
    assert made.listed() == ("a", "b")


def test_loads_of_others_count_against_the_limit():
    made = machine(model_limit=2, exact=True)
    make_hot(made, "a", 0.0)
    made.infer(1, "b", 10.0)
    made.infer(2, "c", 11.0)  # a and the load of b fill it: a goes
    assert made.listed() == ()
    run_until(made, 30.0)
    assert made.listed() == ("b", "c")


def test_a_lower_limit_takes_effect_with_the_next_load():
    made = machine(model_limit=3, exact=True)
    for at_s, model in ((0.0, "a"), (10.0, "b"), (20.0, "c")):
        make_hot(made, model, at_s)
    made.model_limit = 1
    made.advance(30.0)
    assert made.listed() == ("a", "b", "c")
    make_hot(made, "d", 40.0)
    assert made.listed() == ("d",)


def test_a_model_that_is_being_stopped_counts_as_busy():
    made = machine(model_limit=1)
    make_hot(made, "a", 0.0)
    made.stop(1, "a", 10.0)
    made.infer(2, "b", 10.05)
    run_until(made, 10.5)
    assert made.listed() == ()
    assert started_at(run_until(made, 60.0), 2) == pytest.approx(11.05 + 6.0)


# Stops


def test_an_idle_model_stops_in_a_moment():
    made = machine()
    make_hot(made, "a", 0.0)
    assert answers(made.stop(1, "a", 10.0)) == []
    effects = made.advance(10.1)
    assert answers(effects) == [Done(caller=1)]
    assert kinds(effects) == ["unloaded"]
    assert refusal(made.stop(2, "a", 11.0), 2).kind is RefusalKind.NOT_LOADED


def test_with_exact_times_it_stops_at_once():
    made = machine(exact=True)
    make_hot(made, "a", 0.0)
    assert answers(made.stop(1, "a", 10.0, StopCause.CONFIG)) == [Done(caller=1)]


def test_a_stop_waits_for_a_busy_model_and_holds_everybody_up():
    # as recorded: the chat that came after the stop loads the model anew
    made = machine(parallel=4)
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.stop(2, "a", 11.0)
    assert answers(made.infer(3, "a", 11.3)) == []
    assert answers(made.monitor(4, "a", 11.4)) == []
    assert answers(made.infer(5, "b", 11.5)) == []
    made.finish(1, 13.2)
    happened = run_until(made, 60.0)
    assert [at_s for at_s, e in happened if e == Done(caller=2)] == [pytest.approx(13.3)]
    assert refusal(happened, 4).kind is RefusalKind.NOT_LOADED
    assert started_at(happened, 3) == pytest.approx(13.3 + 6.0)
    assert started_at(happened, 5) == 17.5


def test_a_stop_gives_up_on_a_busy_model_after_thirty_seconds():
    made = machine(parallel=4)
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.stop(2, "a", 10.5)
    made.infer(3, "a", 12.0)
    made.monitor(4, "a", 13.0)
    happened = run_until(made, 60.0)
    assert refusal(happened, 2).kind is RefusalKind.BUSY
    assert started_at(happened, 3) == 40.5
    assert Done(caller=4, busy=True) in [e for _, e in happened]


def test_a_stop_goes_on_when_its_caller_leaves():
    made = machine()
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.stop(2, "a", 11.0)
    made.leave(2, 12.0)
    made.finish(1, 13.0)
    happened = run_until(made, 20.0)
    assert not made.is_hot("a")
    assert not [e for _, e in happened if isinstance(e, Done)]


def test_a_stop_waits_for_a_load_that_runs():
    made = machine()
    made.infer(1, "a", 0.0)
    made.stop(2, "a", 1.0)
    happened = run_until(made, 6.0)
    assert started_at(happened, 1) == 6.0
    made.finish(1, 7.0)
    assert [e for _, e in run_until(made, 10.0) if isinstance(e, Done)] == [Done(caller=2)]


def test_a_stop_gives_up_on_a_load_that_takes_too_long():
    made = machine(load_s=100.0)
    made.infer(1, "a", 0.0)
    made.stop(2, "a", 5.0)
    assert refusal(run_until(made, 50.0), 2).kind is RefusalKind.STOP_TIMEOUT
    assert started_at(run_until(made, 200.0), 1) == 102.0


def test_a_stop_of_a_model_that_waits_for_room_finds_nothing():
    made = machine(model_limit=1)
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.infer(2, "b", 10.0)
    assert refusal(made.stop(3, "b", 11.0), 3).kind is RefusalKind.NOT_LOADED


def test_of_two_stops_the_second_finds_nothing():
    made = machine()
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.stop(2, "a", 11.0)
    made.stop(3, "a", 11.0)
    made.finish(1, 12.0)
    happened = run_until(made, 20.0)
    assert Done(caller=2) in [e for _, e in happened]
    assert refusal(happened, 3).kind is RefusalKind.NOT_LOADED


def test_callers_that_leave_behind_a_stop_cost_nothing_when_the_model_stays():
    made = machine()
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.stop(2, "a", 11.0)
    made.infer(3, "a", 12.0)
    made.monitor(4, "a", 12.0)
    made.leave(3, 13.0)
    made.leave(4, 13.0)
    happened = run_until(made, 60.0)
    assert refusal(happened, 2).kind is RefusalKind.BUSY
    assert not [e for _, e in happened if isinstance(e, Started)]
    assert made.cluster.waiting("a") == 0


def test_a_stop_may_lie_hang_or_leave_memory():
    made = machine(capacity_bytes=25, exact=True)
    make_hot(made, "a", 0.0)
    made.set_faults("a", ModelFaults(unload_lies=True))
    assert answers(made.stop(1, "a", 10.0)) == [Done(caller=1)]
    assert made.cluster.free_bytes == 15
    made.set_program_bytes(5)
    assert made.cluster.free_bytes == 10
    made.clear_leaks()
    assert made.cluster.free_bytes == 20
    make_hot(made, "b", 20.0)
    made.set_faults("b", ModelFaults(unload_hangs=True))
    made.stop(2, "b", 30.0)
    made.stop(3, "b", 31.0)
    assert refusal(run_until(made, math.inf), 3).kind is RefusalKind.STOP_TIMEOUT
    assert made.is_hot("b")


# The idle watchdog


def test_an_idle_model_is_stopped_within_the_interval():
    # as recorded: timeout 8 s, gone after 8.5 s
    made = machine(watchdog_idle_s=8.0)
    made.load(1, "a", 0.0)
    happened = run_until(made, 100.0)
    hot_at_s = next(at_s for at_s, e in happened if isinstance(e, Done))
    unloaded = next(
        (at_s, e) for at_s, e in happened
        if isinstance(e, Record) and e.kind is RecordKind.UNLOADED
    )  # fmt: skip
    assert unloaded[0] == hot_at_s + 8.5
    assert unloaded[1].cause == StopCause.IDLE


def test_the_watchdog_spares_pinned_busy_and_stopping_models():
    made = machine(watchdog_idle_s=8.0)
    made.set_pinned("a", pinned=True)
    made.load(1, "a", 0.0)
    made.infer(2, "b", 0.0)
    made.load(3, "c", 0.0)
    run_until(made, 7.0)
    made.set_faults("c", ModelFaults(unload_hangs=True))
    made.stop(4, "c", 7.0)
    run_until(made, 200.0)
    assert set(made.listed()) == {"a", "b", "c"}


def test_the_watchdog_clears_ghosts():
    made = machine(watchdog_idle_s=8.0)
    made.load(1, "a", 0.0)
    run_until(made, 6.0)
    made.crash("a", 7.0)
    run_until(made, 100.0)
    assert made.listed() == ()
