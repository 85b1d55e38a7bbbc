"""Loads that do not wait for a forecast: somebody waits for them, or has asked for them. Pure."""

from __future__ import annotations

import math
from dataclasses import dataclass

from contracts.events import LoadCause, PriorityClass
from contracts.plan import Outcome
from contracts.reasons import Reason
from contracts.world import ModelStatus, Residency
from controller.demand import ABSENT, RANK, Demand, demands, in_turn, spared, yielding
from controller.draft import AT_ONCE, Draft, Evidence, Terms
from controller.eviction import choose_for, idle_models, names
from controller.groups import precedence
from controller.memory import Room
from controller.policies.base import Context, Policy, Victim
from controller.precedence import HEAD_START_S, gives_to_schedules, in_order, is_due
from controller.wishes import reason_of, wished
from controller.yielding import is_kept_off

_MIB = 1024**2

_NOBODY_CAN_HELP = frozenset(
    {
        Reason.COOL_DOWN,
        Reason.GPU_YIELDED,
        Reason.GROUP_LIMIT,
        Reason.MAY_WAIT,
        Reason.NEVER_FITS,
        Reason.OUT_OF_MEMORY,
    }
)
"""Nothing that others do or wait for would help a load that is held for these."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """One load that must be; ``demand`` is None where nobody waits for it."""

    status: ModelStatus
    cause: LoadCause
    reason: Reason
    demand: Demand | None = None
    is_wish: bool = False

    @property
    def rank(self) -> int:
        return RANK[PriorityClass.REALTIME if self.demand is None else self.demand.priority]


@dataclass(frozen=True, slots=True)
class _Made:
    """How room was made: who goes, and how; or why it was not."""

    victims: tuple[Victim, ...] = ()
    terms: Terms = AT_ONCE
    held: Reason | None = None


def must_loads(draft: Draft, context: Context, policy: Policy) -> bool:
    """Order them as far as load slots and room go; whether one of them waits for others.

    Behind one that waits for room only those go on that need none, or are of a higher class:
    nothing is evicted past it, and a model that cannot get room for long does not hold up all
    the others.
    """
    blocked_rank = -1
    for wanted in _all_wanted(draft, context):
        status = wanted.status
        made = _make_room(draft, context, policy, wanted)
        held = made.held
        if held is None and made.victims and blocked_rank >= wanted.rank and not wanted.is_wish:
            held = Reason.NO_ROOM
        if held is not None:
            draft.say(status.model, Outcome.HOLD, held, _room_evidence(draft, context, status))
            may_block = wanted.cause is not LoadCause.SCHEDULE and not wanted.is_wish
            if held not in _NOBODY_CAN_HELP and may_block:
                blocked_rank = max(blocked_rank, wanted.rank)
            continue
        waited_s = context.now_s - (status.wanted_since_s or context.now_s)
        evidence = (("waiting", status.waiting), ("waited_s", round(waited_s, 3)))
        draft.load(status, wanted.cause, wanted.reason, made.victims, evidence, made.terms)
    return blocked_rank >= 0


def _all_wanted(draft: Draft, context: Context) -> list[_Wanted]:
    """Cold models that must be resident: waited for, the most due first, then by operators."""
    world, models = draft.world, draft.on_node(context.node)
    waited = [
        _Wanted(status=one.status, cause=LoadCause.DEMAND, reason=Reason.DEMAND, demand=one)
        for one in demands(world, models)
    ]
    absent = [s for s in models if s.residency in ABSENT and not s.waiting]
    asked = [
        _Wanted(status=status, cause=LoadCause.OPERATOR, reason=Reason.OPERATOR)
        for status in absent
        if status.model in world.operator_loads
    ]
    kept = [
        _Wanted(
            status=status,
            cause=LoadCause.OPERATOR,
            reason=Reason.PINNED if status.pinned else Reason.PRELOAD,
        )
        for status in absent
        if status.model not in world.operator_loads
        and (status.pinned or status.model in world.preloads)
    ]
    groups = context.config.groups
    if groups:
        waited.sort(key=lambda one: _due_s(one) + HEAD_START_S * precedence(one.status, groups))
    named = {one.status.model for one in waited + asked + kept}
    wishes = [
        _Wanted(status=status, cause=LoadCause.DEMAND, reason=reason_of(status), is_wish=True)
        for status in wished(world, models)
        if status.model not in named
    ]
    return waited + asked + kept + wishes + _scheduled(draft, absent)


def _due_s(wanted: _Wanted) -> float:
    assert wanted.demand is not None
    return wanted.demand.due_s


def _scheduled(draft: Draft, absent: list[ModelStatus]) -> list[_Wanted]:
    world = draft.world
    if not world.scheduled:
        return []
    wanted_anyway = world.operator_loads | world.preloads
    return [
        _Wanted(status=status, cause=LoadCause.SCHEDULE, reason=Reason.SCHEDULE)
        for status in absent
        if status.model not in wanted_anyway and not status.pinned and not status.kept_out
        if is_due(world, status)
    ]


def _make_room(draft: Draft, context: Context, policy: Policy, wanted: _Wanted) -> _Made:
    """Whose unloading lets the load start, or why it cannot."""
    room = draft.room(context.node, context.config, policy.model_limit(context))
    held = _hold_reason(draft, context, wanted, room)
    if held is not None:
        return _Made(held=held)
    if not (room.shortage(wanted.status) or room.slots_short(wanted.status)):
        return _Made()
    if room.draining:
        # What drains still counts as held: until it is gone more would be evicted than needed.
        return _Made(held=Reason.DRAINING)
    idle = idle_models(draft.world, draft.on_node(context.node))
    if wanted.cause is LoadCause.SCHEDULE:
        idle = gives_to_schedules(draft.world, idle)
    if wanted.status.on_host:
        # No place on a GPU is given up for a model that takes none, whatever a limit says.
        idle = tuple(status for status in idle if status.on_host)
    ranked = policy.victims(context, idle)
    ranked = in_order(ranked, draft.world, wanted.status, context.config, room.usable_bytes)
    victims = _chosen(context, room, wanted, ranked)
    if wanted.demand is None:
        return _Made(held=Reason.NO_ROOM) if victims is None else _Made(victims)
    if victims is None:
        return _from_busy(draft, context, wanted.demand, room, ranked)
    left_alone = spared(wanted.demand, idle, context.now_s)
    if not left_alone.intersection(names(victims)):
        return _Made(victims)
    others = tuple(victim for victim in ranked if victim.model not in left_alone)
    victims = _chosen(context, room, wanted, others)
    return _Made(held=Reason.MAY_WAIT) if victims is None else _Made(victims)


def _hold_reason(draft: Draft, context: Context, wanted: _Wanted, room: Room) -> Reason | None:
    status = wanted.status
    if status.cooldown_until_s is not None and context.now_s < status.cooldown_until_s:
        return Reason.COOL_DOWN
    if is_kept_off(draft.world, status):
        return Reason.GPU_YIELDED
    if room.is_over_share(status):
        return Reason.GROUP_LIMIT
    if room.can_never_hold(status):
        # What it says of itself would fit: it is what happened when it was tried.
        return Reason.OUT_OF_MEMORY if status.out_of_memory_bytes else Reason.NEVER_FITS
    if not room.loading:
        return None
    if room.loading >= context.config.parallel_loads:
        return Reason.LOAD_SLOTS_FULL
    loading = [s for s in draft.on_node(context.node) if s.residency is Residency.LOADING]
    return Reason.LOAD_SLOTS_FULL if room.disturbs(status, loading) else None


def _from_busy(
    draft: Draft, context: Context, demand: Demand, room: Room, idle: tuple[Victim, ...]
) -> _Made:
    """Room that only busy models can make: by preemption, else when their turn is over."""
    config, world = context.config, draft.world
    if config.turn_s is None:
        return _Made(held=Reason.NO_ROOM)
    models = draft.on_node(context.node)
    if demand.status.on_host:
        models = tuple(status for status in models if status.on_host)
    means = (
        (Reason.PREEMPTED, yielding(world, models, demand)),
        (Reason.FAIR_TURN, in_turn(world, models, demand, config.turn_s)),
    )
    for reason, busy in means:
        ranked = idle + tuple(_busy_victim(context, demand, status, reason) for status in busy)
        victims = choose_for(demand.status, ranked, room, world.models)
        if victims is not None:
            terms = Terms(config.turn_drain_s, preempt=reason is Reason.PREEMPTED)
            return _Made(victims, terms)
    return _Made(held=Reason.NO_ROOM)


def _busy_victim(context: Context, demand: Demand, status: ModelStatus, reason: Reason) -> Victim:
    """Its loss is beyond all others', so that it stays where it turns out not to be needed."""
    return Victim(
        model=status.model,
        freed_bytes=status.occupied_bytes,
        loss=math.inf,
        reason=reason,
        evidence=(
            ("in_flight", status.in_flight),
            ("resident_s", round(context.now_s - status.residency_since_s, 3)),
            ("other_waited_s", round(context.now_s - demand.since_s, 3)),
        ),
    )


def _chosen(
    context: Context, room: Room, wanted: _Wanted, ranked: tuple[Victim, ...]
) -> tuple[Victim, ...] | None:
    return choose_for(
        wanted.status, ranked, room, context.world.models, whole_set=context.config.whole_sets
    )


def _room_evidence(draft: Draft, context: Context, status: ModelStatus) -> Evidence:
    room = draft.room(context.node, context.config, None)
    usable = room.usable_bytes
    return (
        ("needs_mb", status.needed_bytes // _MIB),
        ("occupied_mb", room.occupied_bytes // _MIB),
        ("usable_mb", "unknown" if usable is None else usable // _MIB),
        ("loading", room.loading),
    )
