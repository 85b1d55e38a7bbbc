from __future__ import annotations

import pytest

from api.gateway.admission import Admission, Ticket, Verdict
from contracts.config import QueueConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId, RequestId

A, B = ModelId("a"), ModelId("b")
REALTIME, BATCH, BACKGROUND = PriorityClass


def ticket(
    name: str, model: ModelId = A, priority: PriorityClass = REALTIME, at_s: float = 0.0
) -> Ticket:
    return Ticket(request_id=RequestId(name), model=model, priority=priority, arrived_at_s=at_s)


def admission(**slots: int) -> Admission:
    config = QueueConfig(capacity={REALTIME: 3, BATCH: 2}, timeout_s={REALTIME: 30.0, BATCH: 120.0})
    return Admission(config, {ModelId(model): count for model, count in slots.items()})


def names(tickets: tuple[Ticket, ...]) -> list[str]:
    return [one.request_id for one in tickets]


def test_a_request_for_a_ready_model_goes_at_once_however_many_there_are():
    gate = admission()
    assert all(gate.arrive(ticket(f"r{n}"), ready=True) is Verdict.GO for n in range(100))
    assert gate.running == {A: 100}
    assert gate.waiting == {}


def test_the_queue_of_a_class_is_bounded_and_no_other_class_is_hurt():
    gate = admission()
    verdicts = [gate.arrive(ticket(f"r{n}"), ready=False) for n in range(4)]
    assert verdicts == [Verdict.WAIT] * 3 + [Verdict.FULL]
    assert gate.arrive(ticket("b", priority=BATCH), ready=False) is Verdict.WAIT
    assert gate.arrive(ticket("x", priority=BACKGROUND), ready=False) is Verdict.FULL
    assert gate.queued == {REALTIME: 3, BATCH: 1, BACKGROUND: 0}
    assert gate.waiting == {A: 4}


def test_all_that_wait_for_a_model_go_together_in_the_order_of_class_and_arrival():
    gate = admission()
    gate.arrive(ticket("batch-0", priority=BATCH, at_s=0.0), ready=False)
    gate.arrive(ticket("real-10", at_s=10.0), ready=False)
    gate.arrive(ticket("other-11", model=B, at_s=11.0), ready=False)
    gate.arrive(ticket("real-12", at_s=12.0), ready=False)
    assert names(gate.release(A, 15.0)) == ["real-10", "real-12", "batch-0"]
    assert gate.running == {A: 3}
    assert gate.waiting == {B: 1}
    assert gate.release(A, 16.0) == ()


def test_a_background_request_goes_before_what_came_two_minutes_after_it():
    config = QueueConfig()
    gate = Admission(config, {A: 1})
    gate.arrive(ticket("running"), ready=True)
    gate.arrive(ticket("background-0", priority=BACKGROUND, at_s=0.0), ready=True)
    gate.arrive(ticket("real-119", at_s=119.0), ready=True)
    gate.arrive(ticket("real-121", at_s=121.0), ready=True)
    order = []
    for at_s in (130.0, 131.0, 132.0):
        gate.end(A)
        order += names(gate.release(A, at_s))
    assert order == ["real-119", "background-0", "real-121"]


def test_slots_are_kept_and_nobody_overtakes_those_who_wait():
    gate = admission(a=1)
    assert gate.arrive(ticket("first"), ready=True) is Verdict.GO
    assert not gate.has_slot(A)
    assert gate.arrive(ticket("second"), ready=True) is Verdict.WAIT
    gate.end(A)
    assert gate.has_slot(A)
    assert gate.arrive(ticket("third", at_s=1.0), ready=True) is Verdict.WAIT
    assert names(gate.release(A, 2.0)) == ["second"]
    assert gate.release(A, 2.0) == ()
    gate.end(A)
    assert names(gate.release(A, 3.0)) == ["third"]


def test_one_that_leaves_makes_room_and_is_never_released():
    gate = admission()
    tickets = [ticket(f"r{n}", at_s=float(n)) for n in range(3)]
    for one in tickets:
        gate.arrive(one, ready=False)
    gate.leave(tickets[0])
    gate.leave(tickets[0])
    assert gate.queued[REALTIME] == 2
    assert gate.arrive(ticket("new", at_s=9.0), ready=False) is Verdict.WAIT
    assert names(gate.release(A, 10.0)) == ["r1", "r2", "new"]
    gate.leave(tickets[1])
    assert gate.running == {A: 3}


def test_the_last_one_that_leaves_takes_its_queue_along():
    gate = admission()
    one = ticket("r")
    gate.arrive(one, ready=False)
    gate.leave(one)
    assert gate.waiting == {}
    assert gate.models_by_turn() == ()
    assert gate.arrive(ticket("s"), ready=True) is Verdict.GO


def test_what_runs_is_counted_to_the_end():
    gate = admission()
    gate.arrive(ticket("r"), ready=True)
    gate.arrive(ticket("s"), ready=True)
    gate.end(A)
    assert not gate.is_idle(A)
    gate.end(A)
    assert gate.is_idle(A)
    assert gate.running == {}
    with pytest.raises(AssertionError):
        gate.end(A)
    gate.resume(A)
    assert gate.running == {A: 1}


def test_models_in_the_order_in_which_their_first_request_is_due():
    gate = admission()
    gate.arrive(ticket("a", priority=BATCH, at_s=0.0), ready=False)
    gate.arrive(ticket("b", model=B, at_s=50.0), ready=False)
    assert gate.models_by_turn() == (B, A)


def test_when_to_ask_again_follows_how_fast_the_queue_drains():
    gate = admission(a=1)
    assert gate.retry_after_s(REALTIME, 0.0) == 5.0, "nothing measured yet"
    for number in range(3):
        gate.arrive(ticket(f"r{number}"), ready=False)
    # One leaves every ten seconds, and two still wait.
    gate.release(A, 100.0)
    gate.end(A)
    gate.arrive(ticket("new"), ready=False)
    gate.release(A, 110.0)
    assert gate.queued[REALTIME] == 2
    assert gate.retry_after_s(REALTIME, 120.0) == pytest.approx(20.0)
    assert gate.retry_after_s(REALTIME, 165.0) == 30.0, "never longer than one may wait"
    assert gate.retry_after_s(REALTIME, 300.0) == 5.0, "old measurements are forgotten"
    assert gate.retry_after_s(BACKGROUND, 0.0) == 5.0


def test_an_empty_queue_asks_for_a_second():
    gate = admission()
    gate.arrive(ticket("r"), ready=False)
    gate.release(A, 10.0)
    assert gate.retry_after_s(REALTIME, 10.5) == 1.0
