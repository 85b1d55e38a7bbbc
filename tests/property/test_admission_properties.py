"""Admission, whatever comes: slots are exact, order is kept, nobody starves."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict

from hypothesis import given
from hypothesis import strategies as st

from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.priority import score, standing_s
from api.gateway.slots import PROBE_S, SlotBook
from contracts.config import PriorityWeights, QueueConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId, RequestId

A = ModelId("a")
MANY = dict.fromkeys(PriorityClass, 10_000)

weights = st.builds(
    PriorityWeights,
    user=st.floats(0.0, 100.0),
    service_level=st.floats(0.0, 500.0),
    latency=st.just(2.0),
    efficiency=st.just(5.0),
    ageing=st.floats(0.1, 10.0),
)
arrivals = st.lists(
    st.tuples(
        st.floats(0.0, 300.0).map(lambda at_s: round(at_s, 2)),
        st.sampled_from(PriorityClass),
        st.sampled_from("xyz"),
    ),
    max_size=60,
)


class Play:
    """Requests that come when they come, and run for ``service_s`` in a slot."""

    def __init__(self, config: QueueConfig, slots: int, service_s: float) -> None:
        self.gate = Admission(config, SlotBook({A: slots}))
        self.service_s = service_s
        self.began: list[tuple[float, Ticket]] = []
        self.freed_s: list[float] = []
        self.most = 0

    def run(self, requests: list[tuple[float, PriorityClass, str]]) -> None:
        coming = sorted(requests, key=lambda request: request[0])
        ends: list[tuple[float, int, Ticket]] = []
        while coming or ends:
            if coming and (not ends or coming[0][0] <= ends[0][0]):
                now_s, priority, client = coming.pop(0)
                one = Ticket(
                    request_id=RequestId("r"),
                    model=A,
                    priority=priority,
                    arrived_at_s=now_s,
                    client=client,
                )
                gone = [one] if self.gate.arrive(one, ready=True) is Verdict.GO else []
            else:
                now_s, _, over = heapq.heappop(ends)
                self.freed_s.append(now_s)
                self.gate.end(over)
                gone = list(self.gate.release(A, now_s))
            for one in gone:
                self.began.append((now_s, one))
                heapq.heappush(ends, (now_s + self.service_s, len(self.began), one))
            running = self.gate.running.get(A, 0)
            self.most = max(self.most, running)
            # Nobody waits beside a free slot.
            assert not self.gate.waiting or not self.gate.has_slot(A, now_s)


@given(arrivals, weights, st.integers(1, 4), st.floats(0.5, 20.0))
def test_slots_are_exact_and_all_are_served(requests, weighed, slots, service_s):
    play = Play(QueueConfig(capacity=MANY, weights=weighed), slots, service_s)
    play.run(requests)
    assert play.most <= slots
    assert len(play.began) == len(requests)
    assert not play.gate.running
    assert not any(play.gate.queued.values())


@given(arrivals, weights, st.integers(1, 4), st.floats(0.5, 20.0))
def test_a_clients_requests_of_a_class_keep_their_order(requests, weighed, slots, service_s):
    play = Play(QueueConfig(capacity=MANY, weights=weighed), slots, service_s)
    play.run(requests)
    orders: dict[object, list[float]] = defaultdict(list)
    for _, one in play.began:
        orders[one.priority, one.client].append(one.arrived_at_s)
    # A client's share shrinks with what it has here and grows as that ends: requests that come
    # within that head start of each other may change places, and no others.
    slack_s = weighed.user / weighed.ageing
    for times_s in orders.values():
        latest_s = 0.0
        for at_s in times_s:
            assert at_s >= latest_s - slack_s - 1e-6
            latest_s = max(latest_s, at_s)


@given(arrivals, st.integers(1, 3), st.floats(0.5, 20.0))
def test_without_clients_a_class_is_served_in_order_of_arrival(requests, slots, service_s):
    play = Play(QueueConfig(capacity=MANY), slots, service_s)
    play.run([(at_s, priority, "") for at_s, priority, _ in requests])
    orders: dict[PriorityClass, list[float]] = defaultdict(list)
    for _, one in play.began:
        orders[one.priority].append(one.arrived_at_s)
    assert all(times_s == sorted(times_s) for times_s in orders.values())


@given(arrivals, weights, st.floats(0.5, 20.0), st.sampled_from([20.0, 60.0, 120.0]))
def test_nobody_starves(requests, weighed, service_s, longest_s):
    """Once it has waited for longest_s, only those that came before it go before it, and one
    of a higher class between any two of them."""
    config = QueueConfig(capacity=MANY, weights=weighed, longest_wait_s=longest_s)
    play = Play(config, 1, service_s)
    play.run(requests)
    for place, (began_s, one) in enumerate(play.began):
        overdue_s = one.arrived_at_s + longest_s
        if began_s <= overdue_s:
            continue
        # Those that went while this one was overdue.
        before = [other for at_s, other in play.began[:place] if at_s > overdue_s]
        # Within a class the head of the heap may be a little younger, by the user's term.
        slack_s = weighed.user / weighed.ageing
        older = sum(other.arrived_at_s <= one.arrived_at_s + slack_s for other in before)
        assert len(before) - older <= older + 1


@given(weights, st.lists(st.tuples(st.floats(0.0, 100.0), st.integers(0, 9)), min_size=2))
def test_ageing_never_changes_the_order(weighed, requests):
    """By the score at any time, and by the standing that never changes."""
    stands = [
        standing_s(weighed, PriorityClass.BATCH, arrived_at_s=at_s, others=others)
        for at_s, others in requests
    ]
    for now_s in (100.0, 5_000.0):
        scores = [
            score(
                weighed,
                PriorityClass.BATCH,
                waited_s=now_s - at_s,
                others=others,
                latency_s=1.0,
                model_efficiency=1.0,
            )
            for at_s, others in requests
        ]
        for first in range(len(requests)):
            for second in range(len(requests)):
                if stands[first] < stands[second] - 1e-6:
                    assert scores[first] > scores[second] - 1e-6


@given(
    st.none() | st.integers(1, 20),
    st.lists(st.tuples(st.floats(0.0, 200.0), st.integers(0, 20)), max_size=30),
)
def test_a_learned_limit_is_at_least_one_and_never_above_what_is_declared(declared, refusals):
    book = SlotBook({} if declared is None else {A: declared})
    now_s = 0.0
    for wait_s, others in refusals:
        now_s += wait_s
        before = book.limit(A, now_s)
        book.refused(A, others=others, now_s=now_s, retry_after_s=1.0)
        after = book.limit(A, now_s)
        assert after is not None
        assert 1 <= after <= (declared or after)
        assert before is None or before == 1 or after < before
        grown = book.limit(A, now_s + PROBE_S)
        assert grown is None or grown >= after


@given(st.lists(st.sampled_from(["arrive", "leave", "release", "end", "back"]), max_size=80))
def test_the_accounts_are_always_right(steps):
    gate = Admission(QueueConfig(capacity=MANY), SlotBook({A: 3}))
    waiting: list[Ticket] = []
    running: list[Ticket] = []
    for now_s, step in enumerate(steps):
        if step == "arrive":
            priority = list(PriorityClass)[now_s % 3]
            one = Ticket(
                request_id=RequestId(str(now_s)),
                model=A,
                priority=priority,
                arrived_at_s=float(now_s),
                client="x",
            )
            (running if gate.arrive(one, ready=True) is Verdict.GO else waiting).append(one)
        elif step == "leave" and waiting:
            gate.leave(waiting.pop(now_s % len(waiting)))
        elif step == "release":
            for one in gate.release(A, float(now_s)):
                waiting.remove(one)
                running.append(one)
        elif step == "end" and running:
            gate.end(running.pop(now_s % len(running)))
        elif step == "back" and running:
            one = running.pop(now_s % len(running))
            gate.put_back(one)
            waiting.append(one)
        assert gate.running.get(A, 0) == len(running) <= 3
        assert gate.waiting.get(A, 0) == len(waiting)
        assert Counter(one.priority for one in waiting) == Counter(
            {priority: count for priority, count in gate.queued.items() if count}
        )
