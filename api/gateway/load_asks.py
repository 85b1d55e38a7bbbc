"""Asking the controller for loads while somebody waits for them, and what its silence means."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from enum import StrEnum

from api.gateway.admission import Ticket
from api.gateway.faults import Fault
from api.gateway.live import LiveConfig
from api.gateway.lone_loads import LoneLoads
from api.gateway.priority import SERVICE_LEVEL
from api.gateway.problems import Problem, model_cooldown, no_backend
from api.gateway.residency import Kind, LoadProgress, RouteBook
from contracts.config import GatewayConfig
from contracts.errors import HeadstartError
from contracts.ids import GatewayId, ModelId
from contracts.messages import LoadAnswer, LoadWanted, ToController
from contracts.ports import Clock, Mailbox
from contracts.reasons import Reason, explain

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
        Reason.MAY_WAIT,
    }
)
_PASSES = frozenset({Reason.UNKNOWN_MODEL, Reason.OBSERVE_ONLY, Reason.PASS_THROUGH})

Waiting = Callable[[ModelId], Iterable[Ticket]]


class Word(StrEnum):
    """What an answer of the controller means for those who wait."""

    WAIT = "wait"
    PASS = "pass"  # noqa: S105 - to let them pass, not a password
    REFUSE = "refuse"


class LoadAsks:
    """One task for each model that is waited for: it asks, and asks again, until told to stop.

    Parameters
    ----------
    waiting : callable
        The tickets that wait for a model; none: nobody does any more.
    """

    def __init__(
        self,
        *,
        gateway: GatewayId,
        config: LiveConfig,
        book: RouteBook,
        lone_loads: LoneLoads,
        to_controller: Mailbox[ToController] | None,
        clock: Clock,
        waiting: Waiting,
    ) -> None:
        self._gateway = gateway
        self._live = config
        self._book = book
        self._lone_loads = lone_loads
        self._to_controller = to_controller
        self._clock = clock
        self._waiting = waiting
        self._tasks: dict[ModelId, asyncio.Task[None]] = {}
        self._answers: dict[ModelId, tuple[float, LoadAnswer]] = {}
        self._since_s: dict[ModelId, float] = {}
        lone_loads.is_due = self._is_due
        self._fault = Fault("controller_not_asked")

    def ask(self, model: ModelId) -> None:
        """Begin to ask; nothing happens while that goes on already."""
        if model not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._keep_asking(model))
            self._tasks[model] = task
            task.add_done_callback(lambda done: self._forget(model, done))

    def stop(self, model: ModelId) -> None:
        """Whoever waits next asks anew: a controller's silence counts from there."""
        self._answers.pop(model, None)
        self._since_s.pop(model, None)
        task = self._tasks.pop(model, None)
        if task is not None:
            task.cancel()

    async def close(self) -> None:
        """Stop asking."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def take(self, answer: LoadAnswer) -> Word:
        """The controller says what it does about a load."""
        model = answer.model
        self._book.note_message(model, answer.message)
        if answer.reason is Reason.SHUTTING_DOWN and not answer.accepted:
            self._load_alone(model)
            # Its word is no promise any more; until somebody else speaks, the load is ours.
            self._answers.pop(model, None)
            self._since_s[model] = -math.inf
            return Word.WAIT
        self._answers[model] = (self._clock.monotonic_s(), answer)
        if answer.accepted or self._keeps_waiting(answer):
            return Word.WAIT
        return Word.PASS if answer.reason in _PASSES else Word.REFUSE

    def held(self, model: ModelId) -> Reason | None:
        """Why the controller does not load it, by its last word to those who wait."""
        _, answer = self._answers.get(model, (0.0, None))
        return None if answer is None else answer.reason

    def progress(self, model: ModelId, waited_s: float) -> LoadProgress:
        """How far the load is that a request for ``model`` waits for."""
        progress = self._book.progress(model, now_s=self._clock.now_s(), waited_s=waited_s)
        _, answer = self._answers.get(model, (0.0, None))
        if progress.expected_s is None and answer is not None:
            return LoadProgress(
                state=progress.state, elapsed_s=progress.elapsed_s, expected_s=answer.expected_s
            )
        return progress

    @property
    def _config(self) -> GatewayConfig:
        """What holds now."""
        return self._live.now

    def _forget(self, model: ModelId, task: asyncio.Task[None]) -> None:
        if self._tasks.get(model) is task:
            del self._tasks[model]
            self._since_s.pop(model, None)

    async def _keep_asking(self, model: ModelId) -> None:
        """Ask for a load while somebody waits for it; without an answer it is ours."""
        self._since_s[model] = since_s = self._clock.monotonic_s()
        while (first := _most_pressing(self._waiting(model))) is not None:
            standing = self._book.standing(model, self._clock.now_s())
            if standing.kind is not Kind.WAIT:
                return
            await self._send_wish(first, since_s)
            if self._is_due(model):
                self._load_alone(model)
            # However fast the clock runs, the mailbox is as fast as the machine.
            await self._clock.sleep(max(ASK_AGAIN_S, _MIN_REAL_ASK_S * self._clock.scale))

    async def _send_wish(self, ticket: Ticket, since_s: float) -> None:
        if self._to_controller is None:
            return
        waited_s = self._clock.monotonic_s() - since_s
        budget_s = self._book.load_budget_s(ticket.model, self._config.min_load_budget_s)
        now_s = self._clock.now_s()
        wish = LoadWanted(
            gateway=self._gateway,
            request_id=ticket.request_id,
            model=ticket.model,
            at_s=now_s - waited_s,
            deadline_s=now_s - waited_s + budget_s,
            priority=ticket.priority,
            instead_of=ticket.instead_of,
        )
        try:
            async with self._clock.timeout(self._answer_limit_s()):
                await self._to_controller.send(wish)
        except (HeadstartError, TimeoutError) as error:
            self._fault.begin(str(error) or "not sent in time")
        else:
            self._fault.end()

    def _is_due(self, model: ModelId) -> bool:
        """Whether nobody but this gateway will load what somebody here waits for."""
        since_s = self._since_s.get(model)
        return self._to_controller is None or since_s is None or self._is_silent(model, since_s)

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


def refusal(answer: LoadAnswer) -> Problem:
    """What those who waited are told when the controller refuses a load."""
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


def _most_pressing(tickets: Iterable[Ticket]) -> Ticket | None:
    """Of the highest class the one that came first: the controller judges the load by it."""
    return min(
        tickets,
        key=lambda ticket: (-SERVICE_LEVEL[ticket.priority], ticket.arrived_at_s),
        default=None,
    )
