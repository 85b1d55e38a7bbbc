"""LocalAI's rules in virtual time: each test is a short story."""

from __future__ import annotations

import math

import pytest

from contracts.world import Residency
from simulator.cluster import Cluster, ModelSpec
from simulator.localai import LocalAi
from simulator.localai_core import MAX_UNKNOWN_NAMES
from simulator.localai_effects import (
    Answer,
    Done,
    Effect,
    Record,
    RecordKind,
    RefusalKind,
    Refused,
    Started,
    StopCause,
)
from simulator.localai_state import LocalAiConfig, ModelFaults, cooldown_s


def machine(
    *,
    capacity_bytes: int | None = None,
    exact: bool = False,
    parallel: int = 1,
    load_s: float = 4.0,
    **config: object,
) -> LocalAi:
    specs = [
        ModelSpec(name=name, footprint_bytes=10, load_s=load_s, parallel=parallel)
        for name in ("a", "b", "c", "d")
    ]
    cluster: Cluster[int] = Cluster(specs, capacity_bytes=capacity_bytes)
    made = LocalAiConfig(**config)  # type: ignore[arg-type]  # keywords of the test
    return LocalAi(cluster, made.exact() if exact else made)


def answers(effects: tuple[Effect, ...]) -> list[Answer]:
    return [effect for effect in effects if not isinstance(effect, Record)]


def kinds(effects: tuple[Effect, ...]) -> list[str]:
    return [str(effect.kind) for effect in effects if isinstance(effect, Record)]


def run_until(made: LocalAi, until_s: float) -> list[tuple[float, Effect]]:
    """Advance from one due time to the next; what happened, with its time."""
    happened: list[tuple[float, Effect]] = []
    while True:
        wake_s = made.next_wake_s()
        if wake_s is None or wake_s > until_s:
            return happened
        happened += [(wake_s, effect) for effect in made.advance(wake_s)]


def started_at(happened: list[tuple[float, Effect]], caller: int) -> float:
    return next(
        at_s for at_s, effect in happened if isinstance(effect, Started) and effect.caller == caller
    )


def refusal(effects: tuple[Effect, ...] | list[tuple[float, Effect]], caller: int) -> Refused:
    flat = [item[1] if isinstance(item, tuple) else item for item in effects]
    return next(e for e in flat if isinstance(e, Refused) and e.caller == caller)


def make_hot(made: LocalAi, model: str, at_s: float, caller: int = 900) -> float:
    made.load(caller, model, at_s)
    run_until(made, at_s + 60.0)
    assert made.is_hot(model)
    last_used_s = made.cluster.last_used_s(model)
    assert last_used_s is not None
    return last_used_s


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


# Crashes


def test_a_dead_backend_breaks_its_callers_and_stays_listed():
    made = machine()
    hot_at_s = make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.infer(2, "a", 10.0)
    effects = made.crash("a", 11.0)
    assert [(e.caller, e.kind) for e in answers(effects) if isinstance(e, Refused)] == [
        (1, RefusalKind.BROKEN),
        (2, RefusalKind.BROKEN),
    ]
    assert made.is_ghost("a")
    assert made.listed() == ("a",)
    assert made.cluster.used_bytes == 0
    # until its health is looked at again: requests find nobody, a load "is done"
    assert refusal(made.infer(3, "a", 20.0), 3).kind is RefusalKind.DEAD
    assert refusal(made.monitor(4, "a", 20.0), 4).kind is RefusalKind.DEAD
    assert answers(made.load(5, "a", 20.0)) == [Done(caller=5)]
    again_s = hot_at_s + 30.0
    made.infer(6, "a", again_s)
    assert not made.is_ghost("a")
    assert started_at(run_until(made, again_s + 10.0), 6) == again_s + 6.0


def test_health_is_looked_at_every_thirty_seconds():
    made = machine()
    hot_at_s = make_hot(made, "a", 0.0)
    made.infer(1, "a", hot_at_s + 31.0)
    made.finish(1, hot_at_s + 32.0)
    made.crash("a", hot_at_s + 40.0)
    assert refusal(made.infer(2, "a", hot_at_s + 60.0), 2).kind is RefusalKind.DEAD
    made.infer(3, "a", hot_at_s + 61.0)
    assert not made.is_ghost("a")


def test_a_stop_clears_a_ghost_at_once():
    made = machine()
    make_hot(made, "a", 0.0)
    made.crash("a", 10.0)
    assert answers(made.stop(1, "a", 11.0)) == [Done(caller=1)]
    assert made.listed() == ()
    assert not made.is_ghost("a")


def test_a_ghost_counts_against_the_limit_and_is_evicted():
    made = machine(model_limit=1, exact=True)
    make_hot(made, "a", 0.0)
    made.crash("a", 5.0)
    make_hot(made, "b", 6.0)
    assert made.listed() == ("b",)


def test_a_crash_ends_a_load_and_a_waiting_stop():
    made = machine()
    made.infer(1, "a", 0.0)
    made.advance(2.0)
    refused = refusal(made.crash("a", 3.0), 1)
    assert refused.kind is RefusalKind.LOAD_FAILED
    assert "EOF" in refused.message
    make_hot(made, "b", 20.0)
    made.infer(2, "b", 30.0)
    made.stop(3, "b", 31.0)
    effects = made.crash("b", 32.0)
    assert refusal(effects, 2).kind is RefusalKind.BROKEN
    assert Done(caller=3) in effects
    assert made.listed() == ()


def test_a_crash_of_something_cold_is_nothing():
    made = machine()
    assert made.crash("a", 1.0) == ()


def test_a_crash_while_a_stop_is_ending_changes_nothing_for_it():
    made = machine()
    make_hot(made, "a", 0.0)
    made.stop(1, "a", 10.0)
    made.crash("a", 10.05)
    assert Done(caller=1) in [e for _, e in run_until(made, 11.0)]
    assert made.cluster.residency("a") is Residency.COLD


def test_a_crash_of_a_model_that_waits_for_room_is_nothing():
    made = machine(model_limit=1)
    make_hot(made, "a", 0.0)
    made.infer(1, "a", 10.0)
    made.infer(2, "b", 10.0)
    assert made.crash("b", 11.0) == ()


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
