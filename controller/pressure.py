"""Another program wants the memory: idle models go, the least missed first, and come back. Pure.

The reserve is there for what others take now and then, so that half of it may be used up before
anything goes; then as much goes as brings the whole reserve back. A busy model never goes for
it. What went comes back once there is room beside the reserve again: after ``BACK_AFTER_S``,
and after twice as long each time it had to go again, so that a program which comes and goes
does not make models come and go with it.
"""

from __future__ import annotations

from contracts.config import PlannerConfig
from contracts.events import LoadCause, UnloadCause
from contracts.memory import PlaceId
from contracts.reasons import Reason
from contracts.world import ModelStatus, NodeStatus, Residency
from controller.draft import Draft
from controller.eviction import idle_models, pick_places
from controller.memory import ALL_CARDS, Room
from controller.policies.base import Context, Policy, Victim
from controller.yielding import handed_over

BACK_AFTER_S = 15.0
LONGEST_AWAY_S = 600.0

SMALL_BYTES = 256 * 1024**2
"""What desktops and drivers take and give is nobody's need."""

_MIB = 1024**2


def give_way(draft: Draft, context: Context, policy: Policy) -> None:
    """Unload idle models where others have taken more than half of the reserve."""
    node = draft.world.nodes[context.node]
    room = draft.room(context.node, context.config, policy.model_limit(context))
    short = _short(node, room, context.config)
    if not short or room.draining or room.loading:
        # What is on its way in or out is not others' yet, or not any more.
        return
    idle = idle_models(draft.world, draft.on_node(context.node))
    ranked = policy.victims(context, idle)
    freed = [room.freed(draft.world.models[victim.model]) for victim in ranked]
    chosen = pick_places(freed, [victim.loss for victim in ranked], short, 0)
    if chosen is None:
        # All of them is not enough, and still the best that can be done.
        chosen = [at for at, gives in enumerate(freed) if any(gives.get(p) for p in short)]
    for at in chosen:
        victim = ranked[at]
        evidence = (
            ("others_mb", node.used_by_others_bytes // _MIB),
            ("occupied_mb", room.occupied_bytes // _MIB),
            ("freed_mb", victim.freed_bytes // _MIB),
            ("loss", round(victim.loss, 4)),
        )
        draft.unload(
            Victim(
                model=victim.model,
                freed_bytes=victim.freed_bytes,
                loss=victim.loss,
                reason=Reason.OTHERS_NEED,
                evidence=evidence,
            ),
            context.node,
            UnloadCause.EVICTED,
            "",
        )


def come_back(draft: Draft, context: Context, policy: Policy) -> None:
    """Load one of those that went for others, if there is room for it without anybody's going."""
    room = draft.room(context.node, context.config, policy.model_limit(context))
    if room.loading or room.draining or handed_over(draft.world) is not None:
        return
    models = draft.on_node(context.node)
    away = [status for status in models if status.yielded and _may_return(status, context)]
    for status in sorted(away, key=lambda one: (-(one.last_used_at_s or 0.0), one.model)):
        if not room.shortage(status) and not room.slots_short(status):
            away_s = (("away_s", round(context.now_s - status.residency_since_s, 1)),)
            draft.load(status, LoadCause.PREFETCH, Reason.ROOM_BACK, (), away_s)
            return


def _may_return(status: ModelStatus, context: Context) -> bool:
    if status.residency is not Residency.COLD or status.kept_out:
        return False
    away_s = min(LONGEST_AWAY_S, BACK_AFTER_S * 2.0 ** min(status.yielded - 1, 10))
    return context.now_s - status.residency_since_s >= away_s


def _short(node: NodeStatus, room: Room, config: PlannerConfig) -> dict[PlaceId, int]:
    """What has to be given back, and where; nothing while half of the reserve is left."""
    short: dict[PlaceId, int] = {}
    if room.usable_bytes is not None and room.occupied_bytes > room.usable_bytes:
        missing = _given_back(
            node.memory_total_bytes,
            node.used_by_others_bytes,
            room.occupied_bytes,
            room.usable_bytes,
            config.reserve_ratio,
        )
        if missing:
            short[ALL_CARDS] = missing
    for place, own in zip(node.places, room.places, strict=True):
        if own.usable_bytes is not None and own.occupied_bytes > own.usable_bytes:
            missing = _given_back(
                place.total_bytes,
                place.used_by_others_bytes,
                own.occupied_bytes,
                own.usable_bytes,
                config.reserve_ratio,
            )
            if missing:
                short[own.place] = missing
    return short


def _given_back(
    total: int | None, others: int, occupied: int, usable: int, reserve_ratio: float
) -> int:
    """How much of what is over ``usable`` is others' doing and more than the reserve bears.

    A model that turned out larger than was thought takes from the reserve too, and needs
    nobody's place: no more goes than others have taken.
    """
    if total is None or others < SMALL_BYTES:
        return 0
    bearable = (total - others) * (1.0 - reserve_ratio / 2.0)
    if occupied <= bearable:
        return 0
    return min(occupied - usable, others)
