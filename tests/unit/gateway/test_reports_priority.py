"""Reports on who goes first, replayed in virtual time on the queues alone."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pytest

from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.slots import SlotBook
from contracts.config import QueueConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId, RequestId

A = ModelId("a")
REALTIME, BATCH, BACKGROUND = PriorityClass
MANY = QueueConfig(capacity=dict.fromkeys(PriorityClass, 10_000))


@dataclass
class Play:
    """Requests that come at their times, and slots that are taken for ``service_s``."""

    arrivals: list[tuple[float, str, PriorityClass]]
    slots: int = 1
    service_s: float = 1.0
    began_s: dict[str, float] = field(default_factory=dict)
    most_at_once: int = 0

    def run(self) -> Play:
        gate = Admission(MANY, SlotBook({A: self.slots}))
        ends: list[tuple[float, int, Ticket]] = []
        arrivals = sorted(self.arrivals, key=lambda arrival: arrival[0])
        while arrivals or ends:
            if arrivals and (not ends or arrivals[0][0] < ends[0][0]):
                at_s, name, priority = arrivals.pop(0)
                one = Ticket(
                    request_id=RequestId(name), model=A, priority=priority, arrived_at_s=at_s
                )
                gone = [one] if gate.arrive(one, ready=True) is Verdict.GO else []
            else:
                at_s, _, ended = heapq.heappop(ends)
                gate.end(ended)
                gone = list(gate.release(A, at_s))
            for one in gone:
                self.began_s[one.request_id] = at_s
                heapq.heappush(ends, (at_s + self.service_s, len(self.began_s), one))
            self.most_at_once = max(self.most_at_once, gate.running.get(A, 0))
        return self

    def order(self) -> list[str]:
        return sorted(self.began_s, key=lambda name: self.began_s[name])


@pytest.mark.case("P138")
def test_realtime_is_next_and_a_slot_is_taken_once():
    background = [(0.0, f"b{n}", BACKGROUND) for n in range(10)]
    realtime = [(0.1, f"r{n}", REALTIME) for n in range(3)]
    play = Play(background + realtime).run()
    assert play.order()[:4] == ["b0", "r0", "r1", "r2"]
    assert play.most_at_once == 1


@pytest.mark.case("P138")
def test_fifty_that_wait_for_two_slots_are_two_at_a_time():
    play = Play([(0.0, f"r{n}", REALTIME) for n in range(50)], slots=2).run()
    assert play.most_at_once == 2
    assert play.order() == [f"r{n}" for n in range(50)]


@pytest.mark.case("P139")
def test_background_work_starts_within_two_minutes_of_a_full_house():
    """Realtime keeps the one slot busy for ten minutes, and a second one is always waiting."""
    realtime = [(float(n), f"r{n}", REALTIME) for n in range(-1, 600)]
    play = Play([*realtime, (0.5, "background", BACKGROUND)]).run()
    alone = Play(list(realtime)).run()
    assert play.began_s["background"] - 0.5 <= 120.0
    later_s = [play.began_s[name] - alone.began_s[name] for _, name, _ in realtime]
    assert max(later_s) <= play.service_s, "realtime waits for one job more"


@pytest.mark.case("P139")
def test_a_backlog_of_old_work_leaves_every_second_slot_to_realtime():
    background = [(0.0, f"b{n}", BACKGROUND) for n in range(300)]
    realtime = [(float(at_s), f"r{at_s}", REALTIME) for at_s in range(150, 250, 2)]
    play = Play(background + realtime).run()
    waits_s = [play.began_s[f"r{at_s}"] - at_s for at_s in range(150, 250, 2)]
    assert max(waits_s) <= 2 * play.service_s
