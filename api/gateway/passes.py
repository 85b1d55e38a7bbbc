"""What a request holds while it waits, and when it may go."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from api.gateway.admission import Ticket
from api.gateway.problems import Problem
from contracts.ids import ModelId, NodeId
from contracts.reasons import Reason


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
