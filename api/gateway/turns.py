"""One request's hold on the waiting room, from its entry to its one end there."""

from __future__ import annotations

from dataclasses import replace

from api.gateway.caller import Caller
from api.gateway.headers import RequestHead
from api.gateway.meter import RequestMeter
from api.gateway.passes import Pass, Waiter
from api.gateway.preemption import Yielding
from api.gateway.recognition import Recognised
from api.gateway.slots import NoSlot
from api.gateway.undropped import Undropped
from api.gateway.waiting_room import WaitingRoom
from contracts.config import NodeConfig
from contracts.events import PriorityClass

MAX_PUT_BACKS = 5
"""After so many refusals for want of a slot the caller gets LocalAI's own."""

_REQUEST_ID = b"x-request-id"


class Turn:
    """Enters the room, goes, may be put back or made to yield, and ends.

    Attributes
    ----------
    passed : Pass or None
        What it holds while it runs.
    undropped : Undropped or None
        Its exchange, where that goes on although its caller has left: it keeps its slot.
    """

    __slots__ = (
        "_caller",
        "_head",
        "_put_backs",
        "_request",
        "_room",
        "_waiter",
        "_yielding",
        "passed",
        "undropped",
    )

    def __init__(
        self, room: WaitingRoom, head: RequestHead, request: Recognised, caller: Caller
    ) -> None:
        self._room = room
        self._head = head
        self._request = request
        self._caller = caller
        self._yielding: Yielding | None = None
        self._waiter: Waiter | None = None
        self._put_backs = 0
        self.passed: Pass | None = None
        self.undropped: Undropped | None = None

    @property
    def is_preempted(self) -> bool:
        """Whether it was told to end, for a realtime request."""
        return self._yielding is not None and self._yielding.is_preempted

    @property
    def has_begun(self) -> bool:
        """Whether its answer had begun when it was told so."""
        return self._yielding is not None and self._yielding.has_begun

    @property
    def may_be_put_back(self) -> bool:
        """Whether it may wait once more for a slot that LocalAI did not have."""
        return (
            self.passed is not None
            and self.passed.ticket is not None
            and self._put_backs < MAX_PUT_BACKS
        )

    @property
    def so_far(self) -> Pass | None:
        """What it holds, or how it did until it was refused; None: nothing is known."""
        model = self._request.subject.model
        if self.passed is not None or model is None:
            return self.passed
        return self._room.so_far(model, self._waiter)

    def enter(self) -> Pass | Waiter:
        """Raises Problem when it is refused at once."""
        subject, wishes = self._request.subject, self._request.wishes
        entry = self._room.enter(
            subject.request_id,
            subject.model,
            subject.priority,
            deadline_s=wishes.deadline_s,
            client=subject.client,
            user_weight=self._request.weight,
        )
        self._waiter = entry if isinstance(entry, Waiter) else None
        return entry

    def go(self, passed: Pass) -> None:
        """It runs from now on."""
        self.passed = passed
        ticket = passed.ticket
        if ticket is None or ticket.priority is PriorityClass.REALTIME:
            return  # these never yield
        self._yielding = self._room.may_yield(
            passed,
            self._key(),
            lambda: self._caller.interrupt(has_left=False),
            anytime=self._request.wishes.preempt_anytime,
        )

    def goes_to(self, node: NodeConfig, meter: RequestMeter) -> None:
        """It goes to this node now, for the first time or after another one refused it."""
        passed = self.passed
        assert passed is not None
        meter.dispatched(node=node.node, queue_wait_s=passed.queue_wait_s, cold=passed.is_cold)
        if passed.node != node.node:
            self.passed = replace(passed, node=node.node)

    def begin_answer(self) -> None:
        """The first byte of its answer goes out."""
        if self._yielding is not None:
            self._yielding.has_begun = True

    def put_back(self, refusal: NoSlot) -> Waiter:
        """LocalAI had no slot for it: it waits again, where it stood."""
        self._waiter = self._room.put_back(self._stop_running(), refusal.retry_after_s)
        return self._waiter

    def wait_again(self) -> Waiter:
        """Nothing was done for it: it waits again, where it stood."""
        self._waiter = self._room.wait_again(self._stop_running())
        return self._waiter

    def end(self, *, was_served: bool) -> None:
        """It is over, one way or another."""
        self._stop_yielding()
        passed = self.passed
        if passed is None:
            return
        if self.undropped is None or not self.undropped.when_over(lambda: self._room.leave(passed)):
            self._room.leave(passed, was_served=was_served)

    def _stop_running(self) -> Pass:
        assert self.passed is not None
        passed, self.passed = self.passed, None
        self._put_backs += 1
        self._stop_yielding()
        return passed

    def _stop_yielding(self) -> None:
        if self._yielding is not None:
            self._room.yields_no_more(self._yielding)
            self._yielding = None

    def _key(self) -> str:
        """Who it is over several tries: by its own id, where it sent one."""
        client = self._request.subject.client
        return (
            client if self._head.get(_REQUEST_ID) is None else f"{client} {self._request.shown_id}"
        )
