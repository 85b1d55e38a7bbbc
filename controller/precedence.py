"""Who gives room before whom, beyond what the policy says of each: groups and schedules. Pure.

Under pressure a group that is over its limit gives first, then groups that come after that of
the load, then everybody, then groups that come before it, and last what a schedule wants
resident now. Within each of these the policy's order stands.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from contracts.config import PlannerConfig
from contracts.groups import Groups
from contracts.world import ModelStatus, NodeStatus, WorldSnapshot
from controller.groups import limit_bytes, occupied_bytes, precedence
from controller.policies.base import UNMEASURED_LOAD_S, Victim, expected_load_s

RANK_STEP = 1e6
"""Added to a victim's loss per rank: more than any loss, so that ranks are never mixed."""

_LAST = 100
"""Beyond any difference of two groups' precedence."""

LEAD_MARGIN_S = 2.0
LEAD_FACTOR = 1.25
"""A scheduled load begins so much earlier than its model's usual load time asks for."""

FRESH_S = 60.0
"""What was used this short a time ago is not unloaded for a schedule: somebody may ask on."""

HEAD_START_S = 10.0
"""What one step of precedence is worth among loads that are waited for."""


def in_order(
    ranked: tuple[Victim, ...],
    world: WorldSnapshot,
    wanted: ModelStatus,
    config: PlannerConfig,
    usable_bytes: int | None,
) -> tuple[Victim, ...]:
    """``ranked`` in the order in which they give room for ``wanted``."""
    if not ranked or not (config.groups or world.scheduled):
        return ranked
    node = world.nodes[wanted.node]
    over = _over_limit(world.on_node(wanted.node), config.groups, node, usable_bytes)
    own = precedence(wanted, config.groups)
    ranks = [_rank(world, world.models[v.model], over, own, config.groups) for v in ranked]
    if not any(ranks):
        return ranked
    ordered = sorted(zip(ranks, ranked, strict=True), key=lambda pair: pair[0])
    return tuple(
        replace(victim, loss=victim.loss + rank * RANK_STEP) if rank else victim
        for rank, victim in ordered
    )


def is_due(world: WorldSnapshot, status: ModelStatus) -> bool:
    """Whether a schedule wants it resident now, or so soon that its load has to begin."""
    use = world.scheduled.get(status.model)
    if use is None:
        return False
    return starts_loading_s(status, use.starts_at_s) <= world.taken_at_s < use.ends_at_s


def starts_loading_s(status: ModelStatus, wanted_at_s: float) -> float:
    """When a load has to begin to have ended in time; earlier where it was never measured."""
    load_s = expected_load_s(status)
    if status.load_s is None:
        load_s = max(load_s, UNMEASURED_LOAD_S)
    return wanted_at_s - LEAD_FACTOR * load_s - LEAD_MARGIN_S


def moments_s(world: WorldSnapshot) -> tuple[float, ...]:
    """When time alone makes a scheduled load due."""
    starts = [
        starts_loading_s(world.models[name], use.starts_at_s)
        for name, use in world.scheduled.items()
        if name in world.models
    ]
    return tuple(start_s for start_s in starts if start_s > world.taken_at_s)


def gives_to_schedules(
    world: WorldSnapshot, idle: tuple[ModelStatus, ...]
) -> tuple[ModelStatus, ...]:
    """Those of ``idle`` that may go for a scheduled load: not just used, nor scheduled."""
    since_s = world.taken_at_s - FRESH_S
    return tuple(s for s in idle if last_used_s(s) <= since_s and not is_due(world, s))


def gives_to_prefetches(
    world: WorldSnapshot, wanted: ModelStatus, idle: tuple[ModelStatus, ...], groups: Groups
) -> tuple[ModelStatus, ...]:
    """Those of ``idle`` that may go for a load that nobody waits for."""
    if not (groups or world.scheduled):
        return idle
    own = precedence(wanted, groups)
    return tuple(s for s in idle if not is_due(world, s) and precedence(s, groups) >= own)


def last_used_s(status: ModelStatus) -> float:
    """The last use, or since when it is where it is."""
    return max(status.residency_since_s, status.last_used_at_s or 0.0)


def _over_limit(
    models: Iterable[ModelStatus], groups: Groups, node: NodeStatus, usable_bytes: int | None
) -> frozenset[str]:
    taken = occupied_bytes(models)
    limits = {
        name: limit_bytes(groups[name], node, usable_bytes) for name in taken if name in groups
    }
    return frozenset(
        name for name, limit in limits.items() if limit is not None and taken[name] > limit
    )


def _rank(
    world: WorldSnapshot, victim: ModelStatus, over: frozenset[str], own: int, groups: Groups
) -> int:
    if is_due(world, victim):
        return _LAST
    if victim.group in over:
        return -_LAST
    return own - precedence(victim, groups)
