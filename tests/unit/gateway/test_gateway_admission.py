from __future__ import annotations

import math

import pytest

from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.slots import SlotBook
from contracts.config import PriorityWeights, QueueConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId, RequestId

A, B = ModelId("a"), ModelId("b")
REALTIME, BATCH, BACKGROUND = PriorityClass


def ticket(
    name: str,
    model: ModelId = A,
    priority: PriorityClass = REALTIME,
    at_s: float = 0.0,
    client: str = "",
) -> Ticket:
    return Ticket(
        request_id=RequestId(name),
        model=model,
        priority=priority,
        arrived_at_s=at_s,
        client=client,
    )


def admission(config: QueueConfig | None = None, **slots: int) -> Admission:
    small = QueueConfig(capacity={REALTIME: 3, BATCH: 2}, timeout_s={REALTIME: 30.0, BATCH: 120.0})
    book = SlotBook({ModelId(model): count for model, count in slots.items()})
    return Admission(config or small, book)


def names(tickets: tuple[Ticket, ...]) -> list[str]:
    return [one.request_id for one in tickets]


def served(gate: Admission, running: Ticket, *times_s: float) -> list[str]:
    """Who goes when the one slot of A gets free at these times, starting with ``running``."""
    order: list[str] = []
    for at_s in times_s:
        gate.end(running)
        (running,) = gate.release(A, at_s)
        order.append(running.request_id)
    return order


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
    assert gate.waiting_of(A, REALTIME) == 3
    assert gate.waiting_of(B, REALTIME) == 0


def test_all_that_wait_for_a_model_go_together_in_the_order_of_class_and_arrival():
    gate = admission()
    gate.arrive(ticket("batch-0", priority=BATCH, at_s=0.0), ready=False)
    gate.arrive(ticket("real-10", at_s=10.0), ready=False)
    gate.arrive(ticket("other-11", model=B, at_s=11.0), ready=False)
    gate.arrive(ticket("real-12", at_s=12.0), ready=False)
    assert gate.next_class(A, 15.0) is REALTIME
    assert names(gate.release(A, 15.0)) == ["real-10", "real-12", "batch-0"]
    assert gate.running == {A: 3}
    assert gate.waiting == {B: 1}
    assert gate.release(A, 16.0) == ()
    assert gate.next_class(A, 16.0) is None


def test_a_class_is_a_head_start_of_a_minute_and_no_more():
    gate = admission(QueueConfig(), a=1)
    running = ticket("running")
    gate.arrive(running, ready=True)
    gate.arrive(ticket("background-0", priority=BACKGROUND, at_s=0.0), ready=True)
    gate.arrive(ticket("real-59", at_s=59.0), ready=True)
    gate.arrive(ticket("real-61", at_s=61.0), ready=True)
    assert served(gate, running, 70.0, 71.0, 72.0) == ["real-59", "background-0", "real-61"]


def test_old_work_takes_every_second_slot_and_not_all_of_them():
    gate = admission(QueueConfig(), a=1)
    running = ticket("running")
    gate.arrive(running, ready=True)
    for number in range(3):
        gate.arrive(ticket(f"old-{number}", priority=BACKGROUND, at_s=float(number)), ready=True)
    for number in range(3):
        gate.arrive(ticket(f"new-{number}", at_s=100.0 + number), ready=True)
    order = served(gate, running, *(float(at_s) for at_s in range(104, 110)))
    assert order == ["old-0", "new-0", "old-1", "new-1", "old-2", "new-2"]


def test_whoever_waited_longest_is_next_even_where_weights_would_keep_it_waiting():
    config = QueueConfig(weights=PriorityWeights(service_level=100_000.0))
    gate = admission(config, a=1)
    running = ticket("running")
    gate.arrive(running, ready=True)
    gate.arrive(ticket("background", priority=BACKGROUND, at_s=0.0), ready=True)
    gate.arrive(ticket("batch", priority=BATCH, at_s=1.0), ready=True)
    for at_s in (100.0, 110.0, 120.0):
        gate.arrive(ticket(f"real-{at_s:.0f}", at_s=at_s), ready=True)
    order = served(gate, running, 119.0, 121.0, 122.0, 123.0, 124.0)
    assert order == ["real-100", "background", "real-110", "batch", "real-120"]


def test_who_asks_for_little_goes_before_who_floods_the_queue():
    gate = admission(QueueConfig(), a=1)
    running = ticket("x0", priority=BATCH, client="x")
    gate.arrive(running, ready=True)
    for number in range(1, 6):
        one = ticket(f"x{number}", priority=BATCH, at_s=number / 10, client="x")
        gate.arrive(one, ready=True)
    gate.arrive(ticket("y0", priority=BATCH, at_s=1.0, client="y"), ready=True)
    order = served(gate, running, *(float(at_s) for at_s in range(2, 8)))
    assert order == ["y0", "x1", "x2", "x3", "x4", "x5"]


def test_slots_are_kept_and_nobody_overtakes_those_who_wait():
    gate = admission(a=1)
    first = ticket("first")
    assert gate.arrive(first, ready=True) is Verdict.GO
    assert not gate.has_slot(A, 0.0)
    assert gate.arrive(ticket("second"), ready=True) is Verdict.WAIT
    gate.end(first)
    assert gate.has_slot(A, 0.0)
    assert gate.arrive(ticket("third", at_s=1.0), ready=True) is Verdict.WAIT
    (second,) = gate.release(A, 2.0)
    assert second.request_id == "second"
    assert gate.release(A, 2.0) == ()
    gate.end(second)
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
    assert gate.model_standing_s(A, 0.0) == -75.0 - 2.0 - 5.0
    gate.leave(one)
    assert gate.waiting == {}
    assert gate.model_standing_s(A, 0.0) == math.inf
    assert gate.arrive(ticket("s"), ready=True) is Verdict.GO


def test_of_two_models_the_one_that_is_due_and_costs_less_is_loaded_first():
    gate = admission()
    gate.arrive(ticket("a", at_s=1.0), ready=False)
    gate.arrive(ticket("b", model=B, at_s=0.0), ready=False)
    assert gate.model_standing_s(B, 10.0) < gate.model_standing_s(A, 10.0)
    assert gate.model_standing_s(A, 1.0) < gate.model_standing_s(B, 60.0)


def test_what_runs_is_counted_to_the_end():
    gate = admission()
    one, other = ticket("r", client="x"), ticket("s", client="x")
    gate.arrive(one, ready=True)
    gate.arrive(other, ready=True)
    gate.end(one)
    assert not gate.is_idle(A)
    gate.end(other)
    assert gate.is_idle(A)
    assert gate.running == {}
    with pytest.raises(AssertionError):
        gate.end(other)
    gate.resume(one)
    assert gate.running == {A: 1}


def test_one_that_was_put_back_has_its_old_place():
    gate = admission(a=1)
    first = ticket("first", at_s=0.0)
    gate.arrive(first, ready=True)
    gate.arrive(ticket("second", at_s=1.0), ready=True)
    gate.put_back(first)
    assert gate.running == {}
    assert gate.waiting == {A: 2}
    assert names(gate.release(A, 2.0)) == ["first"]


def test_how_long_requests_run_is_a_moving_average():
    gate = admission()
    assert gate.service_s(A) is None
    for service_s in (10.0, 20.0):
        one = ticket("r")
        gate.arrive(one, ready=True)
        gate.end(one, service_s)
    assert gate.service_s(A) == pytest.approx(12.0)


def test_only_so_many_averages_are_kept(monkeypatch):
    monkeypatch.setattr("api.gateway.admission._MAX_SERVICES", 1)
    gate = admission()
    for model in (A, B):
        one = ticket("r", model=model)
        gate.arrive(one, ready=True)
        gate.end(one, 1.0)
    assert gate.service_s(A) is None
    assert gate.service_s(B) == 1.0


def test_a_new_configuration_holds_from_now_on():
    gate = admission(a=1)
    gate.arrive(ticket("r"), ready=True)
    gate.configure(QueueConfig(capacity={REALTIME: 0}), {A: 2})
    assert gate.arrive(ticket("s"), ready=True) is Verdict.GO
    assert gate.arrive(ticket("t"), ready=True) is Verdict.FULL


def test_when_to_ask_again_follows_how_fast_the_queue_drains():
    gate = admission(a=1)
    assert gate.retry_after_s(REALTIME, 0.0) == 5.0, "nothing measured yet"
    for number in range(3):
        gate.arrive(ticket(f"r{number}"), ready=False)
    # One leaves every ten seconds, and two still wait.
    (first,) = gate.release(A, 100.0)
    gate.end(first)
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


def test_how_long_the_oldest_has_waited_is_told_by_class():
    gate = admission(a=1)
    gate.arrive(ticket("runs"), ready=True)
    assert gate.oldest_s(5.0) == {}
    for name, priority, at_s in (("one", REALTIME, 2.0), ("two", REALTIME, 1.0), ("b", BATCH, 3.0)):
        gate.arrive(ticket(name, priority=priority, at_s=at_s), ready=False)
    assert gate.oldest_s(5.0) == {REALTIME: 4.0, BATCH: 2.0}
    assert gate.capacity[REALTIME] == 3
