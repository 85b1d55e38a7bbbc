"""What a policy is asked, and what it may answer with.

A policy is pure and may be asked speculatively, many times per real change: it neither logs
nor remembers. It ranks; whether there is room, a slot or a reason to hold is the planner's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from contracts.config import PlannerConfig
from contracts.forecasts import Forecasts, NextUse
from contracts.ids import ModelId, NodeId
from contracts.plan import PlannerState
from contracts.reasons import Reason
from contracts.world import ModelStatus, WorldSnapshot
from controller.memory import Room
from controller.policies.curves import CurveBoard

UNMEASURED_LOAD_S = 10.0
"""Load time assumed where neither a measurement nor a footprint says anything."""

DISK_BYTES_PER_S = 600e6
"""Reading speed behind the estimate of a load that was never measured: a SATA-class SSD.
One second for the process start comes on top."""


LOOK_S = 10.0
"""What time alone changes is looked at again after this long: as often as forecasts are renewed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """Everything a policy may look at.

    Attributes
    ----------
    board : CurveBoard
        The curves in ``forecasts``, as a matrix.
    models : tuple of ModelStatus
        The node's, by name.
    """

    now_s: float
    node: NodeId
    world: WorldSnapshot
    forecasts: Forecasts
    state: PlannerState
    config: PlannerConfig
    models: tuple[ModelStatus, ...]
    board: CurveBoard = field(default_factory=CurveBoard)

    def next_use(self, model: ModelId) -> NextUse | None:
        """The model's curve if it may be used now."""
        forecast = self.forecasts.get(model)
        if forecast is None or forecast.next_use is None:
            return None
        return forecast.next_use if forecast.next_use.is_valid(self.now_s) else None

    def target_s(self, model: ModelId) -> float:
        """The wait that its callers accept."""
        sla = self.world.slas.get(model)
        return self.config.default_target_s if sla is None else sla.target_s

    def weight(self, model: ModelId) -> float:
        """What a cold start of this model costs, against one of another."""
        sla = self.world.slas.get(model)
        return 1.0 if sla is None else sla.weight


@dataclass(frozen=True, slots=True, kw_only=True)
class Victim:
    """A model that may be unloaded. ``loss``: what its absence is expected to cost."""

    model: ModelId
    freed_bytes: int
    loss: float
    reason: Reason
    evidence: tuple[tuple[str, float | str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A model that might be loaded ahead of demand, and what that is expected to gain."""

    model: ModelId
    gain: float
    load_s: float
    evidence: tuple[tuple[str, float | str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Swap:
    """A prefetch with what goes for it.

    Attributes
    ----------
    must_beat : float
        What it had to gain: the victims' loss with its margin, and the price.
    surplus_per_s : float
        What it gains beyond that for each second that it keeps a load slot.
    """

    victims: tuple[Victim, ...]
    must_beat: float
    surplus_per_s: float


class Policy(Protocol):
    """One way to decide who stays."""

    name: str

    def victims(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
        """``idle`` in the order in which they should go."""
        ...

    def candidates(self, context: Context, cold: tuple[ModelStatus, ...]) -> tuple[Candidate, ...]:
        """``cold`` models worth a thought, best first; a few, however many are cold."""
        ...

    def swap(
        self, context: Context, candidate: Candidate, idle: tuple[ModelStatus, ...], room: Room
    ) -> Swap | None:
        """What of ``idle`` goes for ``candidate`` now; None where that should not be done."""
        ...

    def expired(self, context: Context, idle: tuple[ModelStatus, ...]) -> tuple[Victim, ...]:
        """Idle models that should go although nobody needs their room."""
        ...

    def model_limit(self, context: Context) -> int | None:
        """The policy's own bound on the number of residents."""
        ...

    def learn(self, context: Context) -> PlannerState:
        """The state after what the world shows; ``context.state`` if nothing is learned."""
        ...


def expected_load_s(status: ModelStatus) -> float:
    """Measured load time, else 1 s + footprint at disk speed, else ``UNMEASURED_LOAD_S``."""
    if status.load_s is not None:
        return status.load_s
    if status.footprint_bytes is not None:
        return 1.0 + status.footprint_bytes / DISK_BYTES_PER_S
    return UNMEASURED_LOAD_S


def idle_s(context: Context, status: ModelStatus) -> float:
    """Time since the last use; since it became resident where it was never used."""
    last_s = status.last_used_at_s
    return max(0.0, context.now_s - (status.residency_since_s if last_s is None else last_s))
