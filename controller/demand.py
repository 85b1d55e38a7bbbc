"""Whose load goes next, and whom it may send away: idle models, and busy ones in turn. Pure.

Requests that wait for a load are ordered by class and age: a class is a head start in
seconds, so that a load that only background work waits for comes to its turn as well.

Whoever waits may always send idle models away, with one exception: what only batch or
background work waits for spares models that were used a moment ago, for a while, since
their next request would bring them back (a chat and the title that is made of it).

Where only busy models are in the way there are two more means, the cheaper one first:

*Preemption.* A realtime load may cancel work that may be cancelled at any time, where nothing
else is in flight there.

*A turn.* A model that is resident serves all that wait for it; while requests for it keep
coming it would stay for ever. So after ``turn_s`` it takes nothing new and goes when its last
request has ended, if another model has waited for its place for a turn too. Where all that it
serves is of a lower class than what waits, it goes without waiting for a turn. With n models
that exclude each other nobody waits longer than n turns, loads and longest requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from contracts.config import PlannerConfig
from contracts.events import PriorityClass
from contracts.ids import ModelId
from contracts.world import ModelStatus, Residency, WorldSnapshot
from controller.eviction import is_spared

HEAD_START_S = {
    PriorityClass.REALTIME: 0.0,
    PriorityClass.BATCH: 30.0,
    PriorityClass.BACKGROUND: 60.0,
}
"""The gateway's second weight, seen from here: half a point of service level is 30 s."""

SPARES_S = {
    PriorityClass.REALTIME: 0.0,
    PriorityClass.BATCH: 10.0,
    PriorityClass.BACKGROUND: 30.0,
}
"""A model that was used this short a time ago is not sent away: people read an answer for
about half a minute before they ask on."""

PATIENCE_S = {
    PriorityClass.REALTIME: 0.0,
    PriorityClass.BATCH: 30.0,
    PriorityClass.BACKGROUND: 60.0,
}
"""Who has waited so long spares nobody any more. Half of the 120 s after which background work
starts at the latest; the rest is for the load."""

PREEMPT_AFTER_S = 1.0
"""So long work may end by itself before it is cancelled for a realtime request."""

TOLD_AFTER_S = PREEMPT_AFTER_S + 1.0
"""By then each gateway's beat has told what it has in flight, and what of that may be cancelled."""

RANK = {PriorityClass.REALTIME: 2, PriorityClass.BATCH: 1, PriorityClass.BACKGROUND: 0}

ABSENT = frozenset({Residency.COLD, Residency.FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What waits for one model that is not resident.

    Attributes
    ----------
    priority : PriorityClass
        The highest class that waits.
    since_s : float
        Arrival of the first request that waits.
    due_s : float
        What it stands in the order by: the earliest arrival with its class's head start.
    """

    status: ModelStatus
    priority: PriorityClass
    since_s: float
    due_s: float


def demands(world: WorldSnapshot, models: Iterable[ModelStatus]) -> tuple[Demand, ...]:
    """What waits for those of ``models`` that are absent, the most due first."""
    waited = {s.model: s for s in models if s.residency in ABSENT and s.waiting}
    if not waited:
        return ()
    oldest_s: dict[ModelId, dict[PriorityClass, float]] = {name: {} for name in waited}
    for request in world.requests.values():
        if request.dispatched_at_s is None and request.model in waited:
            times_s = oldest_s[request.model]
            known_s = times_s.get(request.priority, request.received_at_s)
            times_s[request.priority] = min(known_s, request.received_at_s)
    found = [_demand(status, oldest_s[name]) for name, status in waited.items()]
    return tuple(sorted(found, key=lambda demand: (demand.due_s, demand.status.model)))


def is_waited_for(world: WorldSnapshot, model: ModelId) -> bool:
    """Whether any request waits for ``model``."""
    status = world.models.get(model)
    return status is not None and status.waiting > 0


def spared(demand: Demand, idle: tuple[ModelStatus, ...], now_s: float) -> frozenset[ModelId]:
    """Those of ``idle`` that this demand does not send away yet."""
    if now_s - demand.since_s >= PATIENCE_S[demand.priority]:
        return frozenset()
    fresh_s = now_s - SPARES_S[demand.priority]
    return frozenset(s.model for s in idle if _last_used_s(s) > fresh_s)


def yielding(
    world: WorldSnapshot, models: Iterable[ModelStatus], demand: Demand
) -> tuple[ModelStatus, ...]:
    """Busy models whose work may all be cancelled for this demand, once it has waited a moment."""
    waited_s = world.taken_at_s - demand.since_s
    if demand.priority is not PriorityClass.REALTIME or waited_s < PREEMPT_AFTER_S:
        return ()
    served = _classes(world)
    return tuple(
        status
        for status in _busy(world, models)
        if _is_cancellable(status)
        and RANK[served.get(status.model, PriorityClass.REALTIME)] < RANK[demand.priority]
    )


def in_turn(
    world: WorldSnapshot, models: Iterable[ModelStatus], demand: Demand, turn_s: float
) -> tuple[ModelStatus, ...]:
    """Busy models whose turn is over for this demand, the longest resident first."""
    now_s = world.taken_at_s
    served = _classes(world)

    def is_over(status: ModelStatus) -> bool:
        rank = RANK[served.get(status.model, PriorityClass.REALTIME)]
        if rank < RANK[demand.priority]:
            if demand.priority is not PriorityClass.REALTIME:
                return True
            # What may be cancelled is, in a moment; to ask it to go meanwhile would forbid that.
            # Until gateways have told of it nobody knows.
            is_told = now_s - demand.since_s >= TOLD_AFTER_S
            return is_told and not _is_cancellable(status)
        return now_s - demand.due_s >= turn_s and now_s - status.residency_since_s >= turn_s

    over = [status for status in _busy(world, models) if is_over(status)]
    return tuple(sorted(over, key=lambda status: (status.residency_since_s, status.model)))


def moments_s(
    world: WorldSnapshot, models: tuple[ModelStatus, ...], config: PlannerConfig
) -> tuple[float, ...]:
    """When time alone may change what is done about a load that is waited for."""
    waited = demands(world, models)
    if not waited:
        return ()
    moments = [demand.since_s + PATIENCE_S[demand.priority] for demand in waited]
    moments += [demand.since_s + PREEMPT_AFTER_S for demand in waited]
    spare_s = max(SPARES_S[demand.priority] for demand in waited)
    hot = [status for status in models if status.residency is Residency.HOT]
    moments += [_last_used_s(status) + spare_s for status in hot]
    moments += [s.spared_until_s for s in hot if s.spared_until_s is not None]
    if config.turn_s is not None:
        moments += [demand.due_s + config.turn_s for demand in waited]
        moments += [status.residency_since_s + config.turn_s for status in hot]
        moments += [demand.since_s + TOLD_AFTER_S for demand in waited if hot]
    return tuple(moment_s for moment_s in moments if moment_s > world.taken_at_s)


def _demand(status: ModelStatus, oldest_s: Mapping[PriorityClass, float]) -> Demand:
    if not oldest_s:
        # Known only as a number: nothing says that it is of a lower class.
        oldest_s = {PriorityClass.REALTIME: status.wanted_since_s or 0.0}
    return Demand(
        status=status,
        priority=max(oldest_s, key=lambda priority: RANK[priority]),
        since_s=min(oldest_s.values()),
        due_s=min(at_s + HEAD_START_S[priority] for priority, at_s in oldest_s.items()),
    )


def _busy(world: WorldSnapshot, models: Iterable[ModelStatus]) -> tuple[ModelStatus, ...]:
    """Hot models that serve somebody, or are about to, and that may go after that."""
    return tuple(
        status
        for status in models
        if status.residency is Residency.HOT
        and (status.in_flight or status.waiting)
        and not status.pinned
        and status.model not in world.operator_loads
        and not is_spared(status, world.taken_at_s)
    )


def _is_cancellable(status: ModelStatus) -> bool:
    return 0 < status.in_flight <= status.preemptible


def _classes(world: WorldSnapshot) -> Mapping[ModelId, PriorityClass]:
    """The highest class of the open requests of each model."""
    classes: dict[ModelId, PriorityClass] = {}
    for request in world.requests.values():
        known = classes.get(request.model, request.priority)
        classes[request.model] = max(known, request.priority, key=lambda priority: RANK[priority])
    return classes


def _last_used_s(status: ModelStatus) -> float:
    return max(status.residency_since_s, status.last_used_at_s or 0.0)
