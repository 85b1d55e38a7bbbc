"""Models that would be of use although no request waits for them: ladders, seen by the planner.

Three kinds, all of them kept in ``WorldSnapshot.wishes`` until they run out:

- a lower rung that would answer a request sooner than its model (gateways say so each second),
- the model itself, while a lower rung answers for it: its place on the GPU is still wanted,
- a rung on CPUs of a model that was used lately and can get no place on a GPU now, so that the
  next request need not wait for that rung's load.

A wish is loaded behind what requests wait for, and only idle models go for it. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from contracts.config import PlannerConfig
from contracts.ids import ModelId
from contracts.reasons import Reason
from contracts.variants import Fallback, Ladder, is_made
from contracts.world import ModelStatus, Residency, WorldSnapshot
from controller.demand import ABSENT
from controller.eviction import idle_models
from controller.memory import Room, room
from controller.wish_list import RUNG_S, with_wish
from controller.yielding import is_kept_off

RECENT_S = 900.0
"""A model that was not used for so long needs nobody to stand in for it, and a rung on CPUs
that was not goes."""


def wished(world: WorldSnapshot, models: tuple[ModelStatus, ...]) -> tuple[ModelStatus, ...]:
    """Those of ``models`` that are absent, and wished for by nobody who waits."""
    if not world.wishes:
        return ()
    now_s = world.taken_at_s
    return tuple(
        status
        for status in models
        if status.residency in ABSENT
        and not status.waiting
        and world.wishes.get(status.model, 0.0) > now_s
    )


def reason_of(status: ModelStatus) -> Reason:
    """Why a model that is wished for is loaded."""
    if status.on_host:
        return Reason.CPU_FALLBACK
    return Reason.SMALLER_VARIANT if is_made(status.model) else Reason.DEMAND


def with_stand_ins(
    world: WorldSnapshot, ladders: Mapping[ModelId, Ladder], config: PlannerConfig
) -> WorldSnapshot:
    """Wishes for rungs on CPUs of models that can get no place on a GPU now."""
    if not ladders or not world.mode.orders:
        return world
    until_s = world.taken_at_s + RUNG_S
    rooms: dict[str, tuple[Room, tuple[ModelStatus, ...]]] = {}
    for name in sorted(ladders):
        ladder, status = ladders[name], world.models.get(name)
        if status is None or ladder.fallback is not Fallback.ALLOW or not _is_missed(world, status):
            continue
        if status.node not in rooms:
            here = world.on_node(status.node)
            rooms[status.node] = (
                room(world, status.node, config, models=here),
                idle_models(world, here),
            )
        if is_kept_off(world, status) or _is_shut_out(status, *rooms[status.node]):
            rung = next((rung.model for rung in ladder.rungs if rung.on_host), None)
            if rung is not None and rung in world.models:
                world = with_wish(world, rung, until_s)
    return world


def idle_stand_ins(
    world: WorldSnapshot, models: tuple[ModelStatus, ...]
) -> tuple[ModelStatus, ...]:
    """Rungs on CPUs that we made and that nobody has needed for long: they may go."""
    since_s = world.taken_at_s - RECENT_S
    return tuple(
        status
        for status in models
        if status.on_host
        and is_made(status.model)
        and world.wishes.get(status.model, 0.0) <= world.taken_at_s
        and max(status.residency_since_s, status.last_used_at_s or 0.0) <= since_s
    )


def _is_missed(world: WorldSnapshot, status: ModelStatus) -> bool:
    """Whether it is not there although it was used lately."""
    used_s = status.last_used_at_s
    is_recent = status.waiting > 0 or (used_s is not None and used_s > world.taken_at_s - RECENT_S)
    node = world.nodes.get(status.node)
    return status.residency in ABSENT and is_recent and node is not None and node.alive


def _is_shut_out(status: ModelStatus, here: Room, idle: tuple[ModelStatus, ...]) -> bool:
    """Whether no idle model could make its room."""
    if status.residency is Residency.FAILED and status.out_of_memory_bytes is not None:
        return True
    if here.can_never_hold(status):
        return True
    short = here.shortage(status)
    for other in idle:
        for place, size in here.freed(other).items():
            short[place] = short.get(place, 0) - size
    return any(missing > 0 for missing in short.values())
