"""What a request holds while it waits, and when it may go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from api.gateway.admission import Ticket
from api.gateway.problems import Problem
from api.gateway.standings import Standing
from contracts.events import PriorityClass
from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason


class TurnedOff(Exception):
    """Another rung of the model's ladder answers sooner: it waits here no more."""


@dataclass(slots=True)
class Patience:
    """How long a request has waited, however often it had to; it is kept over put-backs."""

    deadline_s: float | None = None
    for_load_s: float = 0.0
    for_slot_s: float = 0.0


@dataclass(slots=True, kw_only=True)
class Pass:
    """A request may go to ``node`` (None: the primary). It comes back through ``leave``."""

    model: ModelId | None
    node: NodeId | None
    is_cold: bool
    queue_wait_s: float
    reason: Reason
    ticket: Ticket | None = None
    since_s: float = 0.0
    patience: Patience = field(default_factory=Patience, repr=False, compare=False)


@dataclass(slots=True, kw_only=True, eq=False)
class Waiter:
    """One request that waits."""

    ticket: Ticket
    is_cold: bool
    patience: Patience
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    has_waited_for_load: bool = False
    reason: Reason | None = None
    """Why it was let go; None while it waits."""
    problem: Problem | None = None
    turns_off: Callable[[], bool] | None = None
    """Asked now and then while its model is not resident: whether another one answers sooner."""

    def rest_s(self, *, limit_s: float, budget_s: float, now_s: float, for_load: bool) -> float:
        """How much longer it may wait. Waiting for a load does not count against its class.

        Batch and background work, which lets others go first, may wait for its load as long
        as for a slot.
        """
        patience = self.patience
        if for_load:
            is_patient = self.ticket.priority is not PriorityClass.REALTIME
            rest_s = (max(budget_s, limit_s) if is_patient else budget_s) - patience.for_load_s
        else:
            rest_s = limit_s - patience.for_slot_s
        if patience.deadline_s is not None:
            rest_s = min(rest_s, patience.deadline_s - (now_s - self.ticket.arrived_at_s))
        return rest_s


def pass_at_once(
    ticket: Ticket | None, standing: Standing, now_s: float, patience: Patience | None = None
) -> Pass:
    """What a request gets that need not wait."""
    return Pass(
        model=None if ticket is None else ticket.model,
        node=standing.node,
        is_cold=standing.is_cold,
        queue_wait_s=0.0 if ticket is None else now_s - ticket.arrived_at_s,
        reason=standing.reason,
        ticket=ticket,
        since_s=now_s,
        patience=patience or Patience(),
    )
