"""May a background job start now? Pure: the world, the limits and the time come in."""

from __future__ import annotations

from dataclasses import dataclass

from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.limits import ClassLimits
from contracts.reasons import Reason
from contracts.world import Residency, WorldSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionConfig:
    """How long jobs are held, and how fresh the world must be to hold one for it.

    Attributes
    ----------
    hold_s : float
        When a held job looks again, as long as few others are held.
    looks_per_s : float
        All held jobs of a queue together look at most this often: each look is a process.
    longest_hold_s : float
        When a held job looks again at the latest.
    max_hold_s : float
        After this long in all a job starts as soon as a slot of its class is free.
    world_expires_s : float
        A snapshot older than this says nothing.
    """

    hold_s: float = 5.0
    looks_per_s: float = 5.0
    longest_hold_s: float = 900.0
    max_hold_s: float = 120.0
    world_expires_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A job that wants to start. ``others_running``: of its class, without itself."""

    model: ModelId
    priority: PriorityClass
    waited_s: float
    others_running: int
    others_waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The answer; ``retry_after_s`` is 0 for a job that may start."""

    admitted: bool
    reason: Reason
    retry_after_s: float = 0.0


def admit(
    candidate: Candidate,
    *,
    world: WorldSnapshot | None,
    limits: ClassLimits | None,
    now_s: float,
    config: AdmissionConfig,
) -> Admission:
    """Whether the job may start.

    Without limits, or with expired ones, a class has one slot and starts no loads; with them it
    loads what they name. A world that is unknown or old holds nobody: then the gateway alone
    decides.
    """
    bounded = limits is not None and _holds(limits, candidate.priority, now_s)
    slots = limits.slots if limits is not None and bounded else 1
    if candidate.others_running >= slots:
        return _hold(Reason.CLASS_SLOTS_FULL, candidate, config)
    if candidate.waited_s >= config.max_hold_s:
        return Admission(admitted=True, reason=Reason.WAITED_LONGEST)
    if world is None or now_s - world.taken_at_s > config.world_expires_s:
        return Admission(admitted=True, reason=Reason.PASS_THROUGH)
    if _higher_class_waits(world, candidate.priority):
        return _hold(Reason.HIGHER_CLASS_WAITS, candidate, config)
    status = world.models.get(candidate.model)
    if status is None:
        return Admission(admitted=True, reason=Reason.PASS_THROUGH)
    if status.residency is Residency.HOT:
        return Admission(admitted=True, reason=Reason.RESIDENT)
    if limits is not None and bounded and candidate.model in limits.loadable:
        return Admission(admitted=True, reason=Reason.DEMAND)
    return _hold(Reason.NOT_RESIDENT, candidate, config)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoreAdmission:
    """How patient maintenance is.

    Attributes
    ----------
    hold_s : float
        When a held chore looks again.
    max_hold_s : float
        After this long it starts all the same, at the lowest priority: it is for people's good.
    world_expires_s : float
        A snapshot older than this says nothing.
    """

    hold_s: float = 60.0
    max_hold_s: float = 6 * 3600.0
    world_expires_s: float = 30.0


def admit_chore(
    *,
    world: WorldSnapshot | None,
    limits: ClassLimits | None,
    waited_s: float,
    others_running: int,
    now_s: float,
    config: ChoreAdmission,
) -> Admission:
    """Whether heavy maintenance may start: as background work, though it asks no model.

    One at a time; not while somebody waits for a model, nor while background work has no slot.

    Parameters
    ----------
    limits : ClassLimits or None
        Those of background work.
    others_running : int
        Jobs of maintenance that run beside it.
    """
    if others_running > 0:
        return _hold_chore(Reason.CLASS_SLOTS_FULL, config)
    if waited_s >= config.max_hold_s:
        return Admission(admitted=True, reason=Reason.WAITED_LONGEST)
    if limits is not None and _holds(limits, PriorityClass.BACKGROUND, now_s) and not limits.slots:
        return _hold_chore(Reason.CLASS_SLOTS_FULL, config)
    if world is None or now_s - world.taken_at_s > config.world_expires_s:
        return Admission(admitted=True, reason=Reason.PASS_THROUGH)
    if _higher_class_waits(world, PriorityClass.BACKGROUND):
        return _hold_chore(Reason.HIGHER_CLASS_WAITS, config)
    return Admission(admitted=True, reason=Reason.PASS_THROUGH)


def _hold_chore(reason: Reason, config: ChoreAdmission) -> Admission:
    return Admission(admitted=False, reason=reason, retry_after_s=config.hold_s)


_RANK = {PriorityClass.REALTIME: 0, PriorityClass.BATCH: 1, PriorityClass.BACKGROUND: 2}


def _holds(limits: ClassLimits, priority: PriorityClass, now_s: float) -> bool:
    return limits.priority is priority and now_s < limits.valid_until_s


def _higher_class_waits(world: WorldSnapshot, priority: PriorityClass) -> bool:
    return any(
        queue.waiting > 0 and _RANK[queue.priority] < _RANK[priority] for queue in world.queues
    )


def _hold(reason: Reason, candidate: Candidate, config: AdmissionConfig) -> Admission:
    shared_s = min(candidate.others_waiting / config.looks_per_s, config.longest_hold_s)
    return Admission(admitted=False, reason=reason, retry_after_s=max(config.hold_s, shared_s))
