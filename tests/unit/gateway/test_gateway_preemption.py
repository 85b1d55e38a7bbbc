from __future__ import annotations

from api.gateway.admission import Ticket
from api.gateway.preemption import WINDOW_S, PreemptionBook, Yielding, YieldingRequests
from contracts.events import PriorityClass
from contracts.ids import ModelId, RequestId

A = ModelId("a")
REALTIME, BATCH, BACKGROUND = PriorityClass


class Kit:
    def __init__(self, most: int = 2) -> None:
        self.book = PreemptionBook(most)
        self.requests = YieldingRequests(self.book)
        self.told: list[str] = []

    def run(
        self,
        name: str,
        priority: PriorityClass = BACKGROUND,
        *,
        since_s: float = 0.0,
        key: str | None = None,
        anytime: bool = False,
    ) -> Yielding:
        request = Yielding(
            ticket=Ticket(
                request_id=RequestId(name), model=A, priority=priority, arrived_at_s=since_s
            ),
            key=key or name,
            since_s=since_s,
            cancel=lambda: self.told.append(name),
            anytime=anytime,
        )
        self.requests.add(request)
        return request


def test_of_the_lowest_class_the_one_that_was_sent_last_goes():
    kit = Kit()
    kit.run("batch", BATCH, since_s=9.0)
    kit.run("old", since_s=1.0)
    kit.run("new", since_s=2.0)
    assert kit.requests.free_slots(A, 1, 10.0) == 1
    assert kit.told == ["new"]
    assert kit.requests.free_slots(A, 1, 10.0) == 0, "its slot is about to get free"
    assert kit.requests.free_slots(A, 9, 10.0) == 2
    assert kit.told == ["new", "old", "batch"]


def test_realtime_never_and_a_caller_only_before_its_first_byte():
    kit = Kit()
    kit.run("real", REALTIME, anytime=True)
    kit.run("begun").has_begun = True
    assert kit.requests.counts(0.0) == {}
    assert kit.requests.free_slots(A, 1, 0.0) == 0
    kit.run("worker", anytime=True).has_begun = True
    assert kit.requests.counts(0.0) == {A: 1}
    assert kit.requests.clear(A, 0.0) == 1
    assert kit.told == ["worker"]
    assert kit.requests.counts(0.0) == {A: 1}, "until it has ended"


def test_nobody_is_preempted_for_ever():
    kit = Kit(most=2)
    for at_s in (0.0, 1.0):
        request = kit.run("x", key="job-1")
        assert kit.requests.clear(A, at_s) == 1
        kit.requests.remove(request)
    request = kit.run("x", key="job-1")
    assert kit.requests.clear(A, 2.0) == 0
    assert kit.requests.clear(A, WINDOW_S) == 1, "the first time is long ago"
    kit.requests.remove(request)
    assert kit.requests.counts(0.0) == {}
    kit.book.configure(0)
    kit.run("y")
    assert kit.requests.clear(A, 0.0) == 0


def test_what_does_not_run_is_not_told():
    kit = Kit()
    assert kit.requests.clear(A, 0.0) == 0
    assert kit.requests.free_slots(A, 1, 0.0) == 0
    first, second = kit.run("one"), kit.run("two")
    kit.requests.remove(first)
    assert kit.requests.counts(0.0) == {A: 1}
    kit.requests.remove(second)


def test_only_so_many_are_remembered(monkeypatch):
    monkeypatch.setattr("api.gateway.preemption.MAX_KEYS", 1)
    kit = Kit(most=1)
    for name in ("one", "two"):
        kit.run(name, key=name)
    assert kit.requests.clear(A, 0.0) == 2
    kit.run("again", key="one")
    assert kit.requests.clear(A, 0.0) == 1, "the first was forgotten"
