"""Where requests wait until their model can take them, and what is done about it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from api.gateway.admission import Admission, Ticket, Verdict
from api.gateway.faults import Fault
from api.gateway.live import LiveConfig
from api.gateway.lone_loads import LoneLoads
from api.gateway.problems import (
    Problem,
    model_cooldown,
    model_loading,
    no_backend,
    queue_full,
    queue_timeout,
)
from api.gateway.residency import Kind, LoadProgress, RouteBook, Standing
from contracts.config import GatewayConfig
from contracts.errors import HeadstartError, Permanent
from contracts.events import PriorityClass
from contracts.ids import GatewayId, ModelId, NodeId, RequestId
from contracts.messages import LoadAnswer, LoadWanted, ToController
from contracts.ports import Clock, Mailbox
from contracts.reasons import Reason, explain
from contracts.routing import RoutingTable

ASK_AGAIN_S = 1.0
SILENT_ASKS = 3
"""A controller that has answered before may leave so many repeated asks unanswered."""

_MIN_REAL_ANSWER_S = 0.5
_MIN_REAL_ASK_S = 0.1
_KEEPS_WAITING = frozenset(
    {
        Reason.NO_ROOM,
        Reason.LOADING,
        Reason.DRAINING,
        Reason.LOAD_SLOTS_FULL,
        Reason.IN_FLIGHT,
        Reason.PINNED,
        Reason.MINIMUM_RESIDENCY,
        Reason.DEMAND,
    }
)
_PASSES = frozenset({Reason.UNKNOWN_MODEL, Reason.OBSERVE_ONLY, Reason.PASS_THROUGH})


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """A request may go to ``node`` (None: the primary). It comes back through ``leave``."""

    model: ModelId | None
    node: NodeId | None
    is_cold: bool
    queue_wait_s: float
    reason: Reason


@dataclass(slots=True, kw_only=True, eq=False)
class Waiter:
    """One request that waits."""

    ticket: Ticket
    is_cold: bool
    deadline_s: float | None
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    has_waited_for_load: bool = False
    reason: Reason | None = None
    """Why it was let go; None while it waits."""
    problem: Problem | None = None


class WaitingRoom:
    """Lets requests go when their model is resident, and asks for its load until it is."""

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
        self._gateway = gateway
        self._live = config
        self._book = book
        self._admission = admission
        self._lone_loads = lone_loads
        self._to_controller = to_controller
        self._clock = clock
        self._waiters: dict[ModelId, list[Waiter]] = {}
        self._askers: dict[ModelId, asyncio.Task[None]] = {}
        self._answers: dict[ModelId, tuple[float, LoadAnswer]] = {}
        self._fault = Fault("controller_not_asked")
        self.idle = asyncio.Event()
        """Set when a model that drains has nothing in flight any more."""
        lone_loads.on_end = self._on_lone_end

    @property
    def waiting(self) -> Mapping[ModelId, int]:
        """Requests that wait, by model."""
        return {model: len(waiters) for model, waiters in self._waiters.items()}

    def enter(
        self,
        request_id: RequestId,
        model: ModelId | None,
        priority: PriorityClass,
        *,
        deadline_s: float | None = None,
    ) -> Pass | Waiter:
        """A pass if it may go at once, else its place in the room: then ``wait`` for it.

        ``deadline_s`` is how long its caller wants to wait at most. Raises Problem when it
        is refused at once.
        """
        standing = self._book.standing(model, self._clock.now_s())
        if model is None:
            return self._pass(None, standing, waited_s=0.0, reason=standing.reason)
        if standing.kind is Kind.REFUSE:
            raise model_cooldown(model, standing.message, standing.retry_after_s)
        now_s = self._clock.monotonic_s()
        ticket = Ticket(request_id=request_id, model=model, priority=priority, arrived_at_s=now_s)
        verdict = self._admission.arrive(ticket, ready=standing.kind is Kind.FORWARD)
        if verdict is Verdict.GO:
            return self._pass(model, standing, waited_s=0.0, reason=standing.reason)
        if verdict is Verdict.FULL:
            raise queue_full(priority.value, self._admission.retry_after_s(priority, now_s))
        waiter = Waiter(ticket=ticket, is_cold=standing.is_cold, deadline_s=deadline_s)
        self._waiters.setdefault(model, []).append(waiter)
        return waiter

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
                self._end(ticket.model)
            elif not let_go:
                self._admission.leave(ticket)
        standing = self._book.standing(ticket.model, self._clock.now_s())
        return Pass(
            model=ticket.model,
            node=standing.node,
            is_cold=waiter.is_cold or waiter.has_waited_for_load,
            queue_wait_s=self._clock.monotonic_s() - ticket.arrived_at_s,
            reason=waiter.reason or standing.reason,
        )

    def leave(self, passed: Pass) -> None:
        """A request that was let go has ended."""
        if passed.model is not None:
            self._book.note_used(passed.model, self._clock.now_s())
            self._end(passed.model)

    def come_back(self, passed: Pass) -> None:
        """One that had left, such as a silent websocket, runs again."""
        if passed.model is not None:
            self._admission.resume(passed.model)

    def progress(self, model: ModelId, waited_s: float) -> LoadProgress:
        """How far the load is that a request for ``model`` waits for."""
        progress = self._book.progress(model, now_s=self._clock.now_s(), waited_s=waited_s)
        _, answer = self._answers.get(model, (0.0, None))
        if progress.expected_s is None and answer is not None:
            return LoadProgress(
                state=progress.state, elapsed_s=progress.elapsed_s, expected_s=answer.expected_s
            )
        return progress

    def on_table(self, table: RoutingTable, *, is_live: bool = True) -> None:
        """A routing table has come."""
        if self._book.accept(table, is_live=is_live):
            for model in list(self._waiters):
                self._reconsider(model)

    def on_answer(self, answer: LoadAnswer) -> None:
        """The controller says what it does about a load."""
        model = answer.model
        if model not in self._waiters:
            return
        self._book.note_message(model, answer.message)
        if answer.reason is Reason.SHUTTING_DOWN and not answer.accepted:
            self._load_alone(model)
            return
        self._answers[model] = (self._clock.monotonic_s(), answer)
        if not answer.accepted and answer.reason in _PASSES:
            self._let_go(model, Reason.PASS_THROUGH)
        elif not answer.accepted and not self._keeps_waiting(answer):
            self._refuse(model, _refusal(answer))
        else:
            self._reconsider(model)

    def reconsider_all(self) -> None:
        """Something changed that concerns everybody, such as the end of a drain."""
        for model in list(self._waiters):
            self._reconsider(model)

    async def close(self) -> None:
        """Stop asking."""
        askers = list(self._askers.values())
        for asker in askers:
            asker.cancel()
        if askers:
            await asyncio.wait(askers)

    @property
    def _config(self) -> GatewayConfig:
        """What holds for the request of this task."""
        return self._live.now

    async def _wait(self, waiter: Waiter) -> None:
        model = waiter.ticket.model
        spent_s = {True: 0.0, False: 0.0}
        while waiter.reason is None:
            if waiter.problem is not None:
                raise waiter.problem
            standing = self._book.standing(model, self._clock.now_s())
            if standing.kind is Kind.REFUSE:
                raise model_cooldown(model, standing.message, standing.retry_after_s)
            for_load = standing.kind is Kind.WAIT
            if for_load:
                waiter.has_waited_for_load = True
                self._ask(model)
            rest_s = self._rest_s(waiter, spent_s[for_load], for_load=for_load)
            if rest_s <= 0.0:
                raise self._too_long(waiter, for_load=for_load)
            since_s = self._clock.monotonic_s()
            waiter.woken.clear()
            try:
                async with self._clock.timeout(rest_s):
                    await waiter.woken.wait()
            except TimeoutError:
                pass
            spent_s[for_load] += self._clock.monotonic_s() - since_s

    def _rest_s(self, waiter: Waiter, spent_s: float, *, for_load: bool) -> float:
        """How much longer it may wait. Waiting for a load does not count against its class."""
        if for_load:
            limit_s = self._book.load_budget_s(waiter.ticket.model, self._config.min_load_budget_s)
        else:
            limit_s = self._config.queue.timeout_s.get(waiter.ticket.priority, 0.0)
        rest_s = limit_s - spent_s
        if waiter.deadline_s is not None:
            waited_s = self._clock.monotonic_s() - waiter.ticket.arrived_at_s
            rest_s = min(rest_s, waiter.deadline_s - waited_s)
        return rest_s

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
            self._stop_asking(model)
            self._let_go(model, standing.reason)
        for waiter in self._waiters.get(model, ()):
            waiter.woken.set()

    def _let_go(self, model: ModelId, reason: Reason) -> None:
        released = self._admission.release(model, self._clock.monotonic_s())
        tickets = {id(ticket) for ticket in released}
        for waiter in self._waiters.get(model, ()):
            if id(waiter.ticket) in tickets:
                waiter.reason = reason
                if reason is Reason.RESIDENT and waiter.has_waited_for_load:
                    alone = self._book.is_own_load(model)
                    waiter.reason = Reason.NO_CONTROLLER if alone else Reason.DEMAND
                waiter.woken.set()

    def _refuse(self, model: ModelId, problem: Problem) -> None:
        for waiter in self._waiters.get(model, ()):
            waiter.problem = problem
            waiter.woken.set()

    def _end(self, model: ModelId) -> None:
        self._admission.end(model)
        if self._admission.is_idle(model) and model in self._book.draining:
            self.idle.set()
        if model in self._waiters:
            self._reconsider(model)

    def _remove(self, waiter: Waiter) -> None:
        model = waiter.ticket.model
        waiters = self._waiters.get(model, [])
        waiters.remove(waiter)
        if not waiters:
            del self._waiters[model]
            self._stop_asking(model)

    def _pass(
        self, model: ModelId | None, standing: Standing, *, waited_s: float, reason: Reason
    ) -> Pass:
        return Pass(
            model=model,
            node=standing.node,
            is_cold=standing.is_cold,
            queue_wait_s=waited_s,
            reason=reason,
        )

    def _ask(self, model: ModelId) -> None:
        if model not in self._askers:
            task = asyncio.get_running_loop().create_task(self._keep_asking(model))
            self._askers[model] = task
            task.add_done_callback(lambda done: self._forget_asker(model, done))

    def _stop_asking(self, model: ModelId) -> None:
        """Whoever waits next asks anew: a controller's silence counts from there."""
        self._answers.pop(model, None)
        asker = self._askers.pop(model, None)
        if asker is not None:
            asker.cancel()

    def _forget_asker(self, model: ModelId, asker: asyncio.Task[None]) -> None:
        if self._askers.get(model) is asker:
            del self._askers[model]

    async def _keep_asking(self, model: ModelId) -> None:
        """Ask for a load while somebody waits for it; without an answer it is ours."""
        since_s = self._clock.monotonic_s()
        while waiters := self._waiters.get(model):
            standing = self._book.standing(model, self._clock.now_s())
            if standing.kind is not Kind.WAIT:
                return
            await self._send_wish(waiters[0], since_s)
            if self._to_controller is None or self._is_silent(model, since_s):
                self._load_alone(model)
            # However fast the clock runs, the mailbox is as fast as the machine.
            await self._clock.sleep(max(ASK_AGAIN_S, _MIN_REAL_ASK_S * self._clock.scale))

    async def _send_wish(self, waiter: Waiter, since_s: float) -> None:
        if self._to_controller is None:
            return
        ticket = waiter.ticket
        waited_s = self._clock.monotonic_s() - since_s
        budget_s = self._book.load_budget_s(ticket.model, self._config.min_load_budget_s)
        now_s = self._clock.now_s()
        wish = LoadWanted(
            gateway=self._gateway,
            request_id=ticket.request_id,
            model=ticket.model,
            at_s=now_s - waited_s,
            deadline_s=now_s - waited_s + budget_s,
        )
        try:
            async with self._clock.timeout(self._answer_limit_s()):
                await self._to_controller.send(wish)
        except (HeadstartError, TimeoutError) as error:
            self._fault.begin(str(error) or "not sent in time")
        else:
            self._fault.end()

    def _is_silent(self, model: ModelId, since_s: float) -> bool:
        """Whether the controller owes an answer."""
        limit_s = self._answer_limit_s()
        heard_s, _ = self._answers.get(model, (None, None))
        if heard_s is None:
            return self._clock.monotonic_s() - since_s >= limit_s
        return self._clock.monotonic_s() - heard_s >= max(limit_s, SILENT_ASKS * ASK_AGAIN_S)

    def _answer_limit_s(self) -> float:
        """A second; however fast the clock runs, half a real one."""
        return max(self._config.load_answer_timeout_s, _MIN_REAL_ANSWER_S * self._clock.scale)

    def _keeps_waiting(self, answer: LoadAnswer) -> bool:
        if answer.reason is Reason.COOL_DOWN:
            return self._book.is_interrupted(answer.model, self._clock.now_s())
        return answer.reason in _KEEPS_WAITING

    def _load_alone(self, model: ModelId) -> None:
        now_s = self._clock.now_s()
        _, answer = self._answers.get(model, (0.0, None))
        if self._book.is_loading(model) or (answer is not None and answer.accepted):
            # Its load was under way: it may have died with who ordered it.
            self._book.note_interrupted(model, now_s)
        standing = self._book.standing(model, now_s)
        if standing.kind is Kind.WAIT and standing.node is not None:
            self._lone_loads.start(model, standing.node)

    def _on_lone_end(self, model: ModelId, error: HeadstartError | None) -> None:
        if error is None:
            self._reconsider(model)
            return
        if isinstance(error, Permanent) or getattr(error, "retry_after_s", None) is not None:
            retry_after_s = getattr(error, "retry_after_s", None)
            self._refuse(model, model_cooldown(model, str(error), retry_after_s))
        else:
            message = f"LocalAI could not be asked to load {model}: {error}"
            self._refuse(model, no_backend(message, decision=Reason.NODE_LOST))


def _refusal(answer: LoadAnswer) -> Problem:
    if answer.reason is Reason.COOL_DOWN:
        return model_cooldown(answer.model, answer.message, answer.retry_after_s)
    message, why = answer.message, explain(answer.reason)
    if why not in message:
        message = f"{message or f'The model {answer.model} cannot be served now'}: {why}"
    return no_backend(
        f"{message}.",
        retry_after_s=answer.retry_after_s,
        decision=answer.reason,
    )
