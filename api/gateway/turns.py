"""One request's hold on the waiting room, from its entry to its one end there."""

from __future__ import annotations

from dataclasses import replace

from api.gateway.caller import Caller
from api.gateway.detours import Detour
from api.gateway.headers import RequestHead
from api.gateway.meter import RequestMeter, Subject
from api.gateway.passes import Pass, TurnedOff, Waiter
from api.gateway.preemption import Yielding
from api.gateway.problems import Problem
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
    detour : Detour or None
        What may take it to a lower rung of its model's ladder; None: nothing.
    """

    __slots__ = (
        "_caller",
        "_head",
        "_put_backs",
        "_request",
        "_room",
        "_waiter",
        "_yielding",
        "detour",
        "passed",
        "undropped",
    )

    def __init__(
        self,
        room: WaitingRoom,
        head: RequestHead,
        request: Recognised,
        caller: Caller,
        detour: Detour | None = None,
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
        self.detour = detour

    @property
    def subject(self) -> Subject:
        """The request, with the model that serves it."""
        return self._request.subject if self.detour is None else self.detour.subject

    @property
    def is_renamed(self) -> bool:
        """Whether another model serves it than the one that was asked for."""
        return self.detour is not None and self.detour.rename is not None

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
        model = self.subject.model
        if self.passed is not None or model is None:
            return self.passed
        return self._room.so_far(model, self._waiter)

    def enter(self) -> Pass | Waiter:
        """Raises Problem when it is refused at once."""
        if self.detour is not None:
            self.detour.look()
        return self._enter_somewhere()

    def enter_elsewhere(self, cause: Problem | TurnedOff) -> Pass | Waiter:
        """It waits no more where it did; raises the Problem where there is nowhere else."""
        if isinstance(cause, Problem):
            self._step_down(cause)
        return self._enter_somewhere()

    def go(self, passed: Pass) -> None:
        """It runs from now on."""
        if self.detour is not None and self.detour.reason is not None:
            passed = replace(passed, reason=self.detour.reason)
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
        meter.dispatched(
            node=node.node,
            queue_wait_s=passed.queue_wait_s,
            cold=passed.is_cold,
            served_by=self.subject.model if self.is_renamed else None,
        )
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

    def _enter_somewhere(self) -> Pass | Waiter:
        while True:
            try:
                return self._enter()
            except Problem as problem:
                self._step_down(problem)

    def _enter(self) -> Pass | Waiter:
        subject, wishes, before = self.subject, self._request.wishes, self._waiter
        entry = self._room.enter(
            subject.request_id,
            subject.model,
            subject.priority,
            deadline_s=wishes.deadline_s,
            client=subject.client,
            user_weight=self._request.weight,
            arrived_at_s=None if before is None else before.ticket.arrived_at_s,
            instead_of=self._request.subject.model if self.is_renamed else None,
        )
        if isinstance(entry, Waiter):
            self._waiter = entry
            if self.detour is not None:
                entry.turns_off = self._turns_off
        else:
            self._waiter = None
        return entry

    def _turns_off(self) -> bool:
        """Whether another rung answers sooner; never once a head has said which one does."""
        return self.detour is not None and not self._caller.has_answer and self.detour.look()

    def _step_down(self, problem: Problem) -> None:
        """Go on to another rung; raises what the first one was refused for if there is none."""
        detour = self.detour
        if detour is None or self._caller.has_answer:
            raise problem
        if not detour.steps_down(problem):
            raise detour.refusal or problem

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
