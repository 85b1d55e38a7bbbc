"""Backends that die under LocalAI, and the ghosts that they leave."""

from __future__ import annotations

from contracts.world import Residency
from simulator.localai_effects import Done, RefusalKind, Refused
from tests.localai_stage import answers, machine, make_hot, refusal, run_until, started_at


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
