"""Where requests wait until their model can take them, and what is done about it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.live import LiveConfig
from api.gateway.load_asks import LoadAsks, Word, refusal
from api.gateway.lone_loads import LoneLoads
from api.gateway.passes import Pass, Patience, TurnedOff, Waiter, pass_at_once
from api.gateway.preemption import PREEMPT_AFTER_S, PreemptionBook, Yielding, YieldingRequests
from api.gateway.problems import (
    Problem,
    model_cooldown,
    model_loading,
    no_backend,
    queue_full,
    queue_timeout,
    shutting_down,
)
from api.gateway.residency import Kind, LoadProgress, RouteBook
from contracts.config import GatewayConfig
from contracts.errors import HeadstartError, Permanent
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, RequestId
from contracts.messages import LoadAnswer, ToController
from contracts.ports import Clock, Mailbox
from contracts.reasons import Reason
from contracts.routing import RoutingTable

_NO_TIME_S = 1e-6
"""What sums of times may be off by: a rest this short would be waited for again and again."""

_LOOK_S = 1.0
"""How often a request that waits for a load looks whether another rung answers sooner."""


class WaitingRoom:
    """Lets requests go when their model is resident and has a slot, and sees to both."""

    def __init__(
        self,
        *,
        gateway: GatewayId,
        config: LiveConfig,
        book: RouteBook,
        admission: Admission,
        lone_loads: LoneLoads,
        to_controller: Mailbox[ToController] | None,
        clock: Clock,
    ) -> None:
        self._live = config
        self._book = book
        self._admission = admission
        self._clock = clock
        self._waiters: dict[ModelId, list[Waiter]] = {}
        self._is_shut = False
        self._yielding = YieldingRequests(PreemptionBook(config.now.queue.max_preemptions))
        self._asks = LoadAsks(
            gateway=gateway,
            config=config,
            book=book,
            lone_loads=lone_loads,
            to_controller=to_controller,
            clock=clock,
            waiting=lambda model: [waiter.ticket for waiter in self._waiters.get(model, ())],
        )
        self.idle = asyncio.Event()
        """Set when a model that drains has nothing in flight any more."""
        lone_loads.on_end = self._on_lone_end

    @property
    def waiting(self) -> Mapping[ModelId, int]:
        """Requests that wait, by model."""
        return {model: len(waiters) for model, waiters in self._waiters.items()}

    @property
    def preemptible(self) -> Mapping[ModelId, int]:
        """Requests that run and may be cancelled for a realtime one, by model."""
        return self._yielding.counts(self._clock.monotonic_s())

    def enter(
        self,
        request_id: RequestId,
        model: ModelId | None,
        priority: PriorityClass,
        *,
        deadline_s: float | None = None,
        client: str = "",
        user_weight: float = 1.0,
        arrived_at_s: float | None = None,
        instead_of: ModelId | None = None,
    ) -> Pass | Waiter:
        """A pass if it may go at once, else its place in the room: then ``wait`` for it.

        ``deadline_s`` is how long its caller wants to wait at most, ``arrived_at_s`` since when
        it does (None: since now). Raises Problem when it is refused at once.
        """
        standing = self._book.standing(model, self._clock.now_s())
        now_s = self._clock.monotonic_s()
        if model is None:
            return pass_at_once(None, standing, now_s)
        if standing.kind is Kind.REFUSE:
            raise model_cooldown(model, standing.message, standing.retry_after_s)
        ticket = Ticket(
            request_id=request_id,
            model=model,
            priority=priority,
            arrived_at_s=now_s if arrived_at_s is None else arrived_at_s,
            client=client,
            user_weight=user_weight,
            instead_of=instead_of,
        )
        verdict = self._admission.arrive(ticket, ready=standing.kind is Kind.FORWARD)
        if verdict is Verdict.GO:
            return pass_at_once(ticket, standing, now_s, Patience(deadline_s))
        if verdict is Verdict.FULL:
            raise queue_full(priority.value, self._admission.retry_after_s(priority, now_s))
        return self._seat(ticket, Patience(deadline_s), is_cold=standing.is_cold)

    async def wait(self, waiter: Waiter) -> Pass:
        """Until the request may go. Raises Problem when it may not, or not soon enough."""
        ticket = waiter.ticket
        let_go = False
        try:
            await self._wait(waiter)
            let_go = True
        finally:
            self._remove(waiter)
            if not let_go and waiter.reason is not None:
                self._end(ticket)
            elif not let_go:
                self._admission.leave(ticket)
        standing = self._book.standing(ticket.model, self._clock.now_s())
        return Pass(
            model=ticket.model,
            node=standing.node,
            is_cold=waiter.is_cold or waiter.has_waited_for_load,
            queue_wait_s=self._clock.monotonic_s() - ticket.arrived_at_s,
            reason=waiter.reason or standing.reason,
            ticket=ticket,
            since_s=self._clock.monotonic_s(),
            patience=waiter.patience,
        )

    def so_far(self, model: ModelId, waiter: Waiter | None) -> Pass:
        """How a request did that was never let go; without ``waiter`` it was refused at once."""
        standing = self._book.standing(model, self._clock.now_s())
        if waiter is None:
            is_cold, waited_s = standing.is_cold, 0.0
        else:
            is_cold = waiter.is_cold or waiter.has_waited_for_load
            waited_s = self._clock.monotonic_s() - waiter.ticket.arrived_at_s
        return Pass(
            model=model,
            node=None,
            is_cold=is_cold,
            queue_wait_s=waited_s,
            reason=Reason.LOADING if is_cold else Reason.IN_FLIGHT,
        )

    def leave(self, passed: Pass, *, was_served: bool = False) -> None:
        """A request that was let go has ended; ``was_served``: with a whole answer."""
        if passed.ticket is not None:
            self._book.note_used(passed.ticket.model, self._clock.now_s())
            served_s = self._clock.monotonic_s() - passed.since_s if was_served else None
            self._end(passed.ticket, served_s)

    def come_back(self, passed: Pass) -> None:
        """One that had left, such as a silent websocket, runs again."""
        if passed.ticket is not None:
            self._admission.resume(passed.ticket)

    def put_back(self, passed: Pass, retry_after_s: float) -> Waiter:
        """LocalAI had no slot for it and did nothing: it waits on, at its old place."""
        assert passed.model is not None
        others = self._admission.running[passed.model] - 1
        now_s = self._clock.monotonic_s()
        self._admission.slots.refused(
            passed.model, others=others, now_s=now_s, retry_after_s=retry_after_s
        )
        return self.wait_again(passed)

    def wait_again(self, passed: Pass) -> Waiter:
        """It was let go, but nothing was done for it: it waits on, at its old place."""
        ticket = passed.ticket
        assert ticket is not None
        self._admission.put_back(ticket)
        return self._seat(ticket, passed.patience, is_cold=passed.is_cold)

    def may_yield(
        self, passed: Pass, key: str, cancel: Callable[[], None], *, anytime: bool
    ) -> Yielding | None:
        """A request that runs may be told to end for a realtime one, by ``cancel``.

        None: never this one. Else it comes back through ``yields_no_more``.
        """
        ticket = passed.ticket
        if ticket is None or ticket.priority is PriorityClass.REALTIME:
            return None
        self._yielding.book.configure(self._config.queue.max_preemptions)
        request = Yielding(
            ticket=ticket,
            key=key,
            since_s=self._clock.monotonic_s(),
            cancel=cancel,
            anytime=anytime,
        )
        self._yielding.add(request)
        return request

    def yields_no_more(self, request: Yielding) -> None:
        """It has ended, or waits again."""
        self._yielding.remove(request)

    def progress(self, model: ModelId, waited_s: float) -> LoadProgress:
        """How far the load is that a request for ``model`` waits for."""
        return self._asks.progress(model, waited_s)

    def held(self, model: ModelId) -> Reason | None:
        """Why the controller does not load what is waited for; None: not told."""
        return self._asks.held(model)

    def on_table(self, table: RoutingTable, *, is_live: bool = True) -> None:
        """A routing table has come."""
        if not self._book.accept(table, is_live=is_live):
            return
        self._admission.tell(table.models.values())
        for model in table.preempting:
            self._yielding.clear(model, self._clock.monotonic_s())
        self.reconsider_all()

    def on_answer(self, answer: LoadAnswer) -> None:
        """The controller says what it does about a load."""
        model = answer.model
        if model not in self._waiters:
            return
        match self._asks.take(answer):
            case Word.PASS:
                self._let_go(model, Reason.PASS_THROUGH)
            case Word.REFUSE:
                self._refuse(model, refusal(answer))
            case Word.WAIT:
                self._reconsider(model)

    def reconsider_all(self) -> None:
        """Something changed that concerns everybody, such as the end of a drain."""
        for model in list(self._waiters):
            self._reconsider(model)

    def shut(self) -> None:
        """The gateway stops: whoever waits is told so, and whoever would have to."""
        self._is_shut = True
        for model in list(self._waiters):
            self._refuse(model, shutting_down())

    async def close(self) -> None:
        """Stop asking."""
        await self._asks.close()

    @property
    def _config(self) -> GatewayConfig:
        """What holds for the request of this task."""
        return self._live.now

    async def _wait(self, waiter: Waiter) -> None:
        model = waiter.ticket.model
        while waiter.reason is None:
            if waiter.problem is not None:
                raise waiter.problem
            standing = self._book.standing(model, self._clock.now_s())
            if standing.kind is Kind.REFUSE:
                raise model_cooldown(model, standing.message, standing.retry_after_s)
            for_load = standing.kind is Kind.WAIT
            if for_load:
                waiter.has_waited_for_load = True
                self._asks.ask(model)
            rest_s = self._rest_s(waiter, for_load=for_load)
            if rest_s <= _NO_TIME_S:
                raise self._too_long(waiter, for_load=for_load)
            if for_load and waiter.turns_off is not None:
                if waiter.turns_off():
                    raise TurnedOff
                rest_s = min(rest_s, _LOOK_S)
            await self._doze(waiter, rest_s, for_load=for_load)

    async def _doze(self, waiter: Waiter, rest_s: float, *, for_load: bool) -> None:
        """Until something changed, or at most ``rest_s``; it counts as waited."""
        since_s = self._clock.monotonic_s()
        patience = waiter.patience
        alarm_s = None if for_load else self._alarm_s(waiter, since_s)
        waiter.woken.clear()
        try:
            async with self._clock.timeout(rest_s if alarm_s is None else min(rest_s, alarm_s)):
                await waiter.woken.wait()
        except TimeoutError:
            if alarm_s is not None:
                self._on_alarm(waiter)
        spent_s = self._clock.monotonic_s() - since_s
        if for_load:
            patience.for_load_s += spent_s
        else:
            patience.for_slot_s += spent_s

    def _alarm_s(self, waiter: Waiter, now_s: float) -> float | None:
        """When time alone may give it a slot; None: only the end of another request."""
        ticket = waiter.ticket
        alarms = [self._admission.slots.recheck_s(ticket.model, now_s)]
        if ticket.priority is PriorityClass.REALTIME:
            rest_s = PREEMPT_AFTER_S - waiter.patience.for_slot_s
            alarms.append(rest_s if rest_s > _NO_TIME_S else PREEMPT_AFTER_S)
        return min((alarm_s for alarm_s in alarms if alarm_s is not None), default=None)

    def _on_alarm(self, waiter: Waiter) -> None:
        """No request ended in time: try again, and cancel what may be cancelled."""
        model, now_s = waiter.ticket.model, self._clock.monotonic_s()
        standing = self._book.standing(model, self._clock.now_s())
        if standing.kind is not Kind.FORWARD:
            return
        # The others need not look: each has an alarm of its own.
        self._let_go(model, standing.reason)
        if self._admission.next_class(model, now_s) is PriorityClass.REALTIME:
            waiting = self._admission.waiting_of(model, PriorityClass.REALTIME)
            self._yielding.free_slots(model, waiting, now_s)

    def _rest_s(self, waiter: Waiter, *, for_load: bool) -> float:
        ticket = waiter.ticket
        return waiter.rest_s(
            limit_s=self._config.queue.timeout_s.get(ticket.priority, 0.0),
            budget_s=self._book.load_budget_s(ticket.model, self._config.min_load_budget_s),
            now_s=self._clock.monotonic_s(),
            for_load=for_load,
        )

    def _too_long(self, waiter: Waiter, *, for_load: bool) -> Problem:
        ticket = waiter.ticket
        now_s = self._clock.monotonic_s()
        waited_s = now_s - ticket.arrived_at_s
        if not for_load:
            retry_after_s = self._admission.retry_after_s(ticket.priority, now_s)
            return queue_timeout(waited_s, retry_after_s)
        at = self.progress(ticket.model, waited_s)
        return model_loading(
            ticket.model, state=at.state, elapsed_s=at.elapsed_s, expected_s=at.expected_s
        )

    def _reconsider(self, model: ModelId) -> None:
        """Let go whom the present state lets go, and let all others look again."""
        standing = self._book.standing(model, self._clock.now_s())
        if standing.kind is Kind.FORWARD:
            self._asks.stop(model)
            self._let_go(model, standing.reason)
        for waiter in self._waiters.get(model, ()):
            waiter.woken.set()

    def _let_go(self, model: ModelId, reason: Reason) -> None:
        released = set(self._admission.release(model, self._clock.monotonic_s()))
        for waiter in self._waiters.get(model, ()) if released else ():
            if waiter.ticket in released:
                waiter.reason = reason
                if reason is Reason.RESIDENT and waiter.has_waited_for_load:
                    alone = self._book.is_own_load(model)
                    waiter.reason = Reason.NO_CONTROLLER if alone else Reason.DEMAND
                waiter.woken.set()

    def _refuse(self, model: ModelId, problem: Problem) -> None:
        for waiter in self._waiters.get(model, ()):
            waiter.problem = problem
            waiter.woken.set()

    def _end(self, ticket: Ticket, served_s: float | None = None) -> None:
        model = ticket.model
        self._admission.end(ticket, served_s)
        if self._admission.is_idle(model) and model in self._book.draining:
            self.idle.set()
        for freed in self._admission.freed_by(model):
            if freed in self._waiters:
                self._reconsider(freed)

    def _seat(self, ticket: Ticket, patience: Patience, *, is_cold: bool) -> Waiter:
        waiter = Waiter(ticket=ticket, is_cold=is_cold, patience=patience)
        waiter.problem = shutting_down() if self._is_shut else None
        self._waiters.setdefault(ticket.model, []).append(waiter)
        return waiter

    def _remove(self, waiter: Waiter) -> None:
        model = waiter.ticket.model
        waiters = self._waiters.get(model, [])
        waiters.remove(waiter)
        if not waiters:
            del self._waiters[model]
            self._asks.stop(model)

    def _on_lone_end(self, model: ModelId, error: HeadstartError | None) -> None:
        if error is None:
            self._reconsider(model)
            return
        retry_after_s = getattr(error, "retry_after_s", None)
        if isinstance(error, Permanent) or retry_after_s is not None:
            self._refuse(model, model_cooldown(model, str(error), retry_after_s))
        else:
            message = f"LocalAI could not be asked to load {model}: {error}"
            self._refuse(model, no_backend(message, decision=Reason.NODE_LOST))
