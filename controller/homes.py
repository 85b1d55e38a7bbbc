"""Which node a model is planned for where several know it: its home. Pure.

The planner loads and unloads a model on its home alone; copies that are resident elsewhere
are used for routing, and are there because somebody else loaded them. A home changes only
while nothing of the model is there, so that no load is thrown away:

1. The home is lost or leaving, or lists the model no more: the best node that still knows it.
2. The model is not resident at home but is elsewhere: there, unless that is a lesser kind of
   node (a CPU instead of a GPU).
3. It is nowhere resident, and another node is better: of a preferred accelerator, a GPU
   rather than a CPU, or with room where the home would have to evict. Of equals the present
   home stays; a model that was never loaded goes where most is free.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from contracts.config import ModelProfile, PlannerConfig
from contracts.ids import ModelId, NodeId
from contracts.plan import Decision, Outcome
from contracts.reasons import Reason
from contracts.world import ModelStatus, NodeStatus, Residency, WorldSnapshot
from controller.membership import is_fresh, moved
from controller.memory import usable_bytes
from controller.places import takes_main_memory

POLICY = "homes"
CPU = "cpu"
_TOO_SMALL = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One model that got another home, and why."""

    model: ModelId
    before: NodeId
    after: NodeId
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Space:
    """Bytes that our orders may fill on a node, and those that are left; None: not known."""

    usable_bytes: int | None
    free_bytes: int | None


def rehomed(
    world: WorldSnapshot, config: PlannerConfig, profiles: Mapping[ModelId, ModelProfile]
) -> tuple[WorldSnapshot, tuple[Move, ...]]:
    """The world with every model at its best home, and what moved.

    Moves of models that were never loaded or asked for are made, but not told.
    """
    if len(world.nodes) < 2:
        return world, ()
    space = _space(world, config)
    listers: dict[ModelId, list[NodeId]] = {}
    holders: dict[ModelId, list[NodeId]] = {}
    for name in sorted(world.nodes, key=lambda name: (-(space[name].free_bytes or 0), name)):
        if world.nodes[name].alive:
            for model in world.nodes[name].lists:
                listers.setdefault(model, []).append(name)
            for model in world.nodes[name].residents:
                holders.setdefault(model, []).append(name)
    models = dict(world.models)
    moves: list[Move] = []
    for model, listing in sorted(listers.items()):
        status = models.get(model)
        nodes = [name for name in listing if not world.nodes[name].leaving] or listing
        if status is None or nodes == [status.node]:
            continue
        resident = [name for name in holders.get(model, ()) if name in nodes]
        move = _move(world, status, nodes, resident, space, profiles.get(model))
        if move is None:
            continue
        is_there = model in world.nodes[move.after].residents
        models[model] = moved(status, move.after, is_there=is_there, now_s=world.taken_at_s)
        if not is_fresh(status):
            moves.append(move)
    return replace(world, models=models), tuple(moves)


def decided(moves: tuple[Move, ...], sequence: int, now_s: float) -> tuple[Decision, ...]:
    """The moves as decisions; ``sequence`` makes their ids unique."""
    return tuple(
        Decision(
            policy=POLICY,
            subject=move.model,
            outcome=Outcome.CHANGE,
            reason=move.reason,
            evidence=(("from", move.before), ("to", move.after)),
            decision_id=f"d{sequence}-{number}",
            made_at_s=now_s,
        )
        for number, move in enumerate(moves)
    )


def _move(
    world: WorldSnapshot,
    status: ModelStatus,
    nodes: list[NodeId],
    resident: list[NodeId],
    space: Mapping[NodeId, _Space],
    profile: ModelProfile | None,
) -> Move | None:
    """Where it is better off; ``nodes`` know it, those with the most free memory first."""
    home = world.nodes.get(status.node)
    is_absent = status.residency in (Residency.COLD, Residency.FAILED)
    is_lost = home is None or not home.alive or (home.leaving and status.node not in nodes)

    if is_lost or (is_absent and status.node not in nodes):
        after = _best_of(resident or nodes, world, status, space, profile)
        leaves = home is not None and home.alive and home.leaving
        reason = Reason.INSTANCE_MISSING if leaves else Reason.NODE_LOST
        return Move(model=status.model, before=status.node, after=after, reason=reason)
    if not is_absent:
        return None
    if resident:
        if status.node in resident:
            return None
        after = _best_of(resident, world, status, space, profile)
        kinds = [
            _quality(world.nodes[name], status, space[name], profile)[0]
            for name in (status.node, after)
        ]
        # A copy on a CPU helps out; it is no reason to leave a GPU for good.
        if kinds[1] > kinds[0]:
            return None
        return Move(model=status.model, before=status.node, after=after, reason=Reason.RESIDENT)
    if status.residency is Residency.FAILED:
        # The same model may fail everywhere: its cool-down holds, wherever it is.
        return None
    after = _best_of(nodes, world, status, space, profile)
    here, there = (
        _quality(world.nodes[name], status, space[name], profile) for name in (status.node, after)
    )
    if there < here or (there == here and _is_roomier(status, space, after)):
        return Move(model=status.model, before=status.node, after=after, reason=Reason.NO_ROOM)
    return None


def _best_of(
    names: list[NodeId],
    world: WorldSnapshot,
    status: ModelStatus,
    space: Mapping[NodeId, _Space],
    profile: ModelProfile | None,
) -> NodeId:
    """The first of the best quality has the most free: the rest need not be looked at."""
    best = (1 if _preferred(status, profile) is None else 0, False)
    found, least = names[0], (_TOO_SMALL, True)
    for name in names:
        quality = _quality(world.nodes[name], status, space[name], profile)
        if quality < least:
            found, least = name, quality
        if quality == best:
            break
    return found


def _is_roomier(status: ModelStatus, space: Mapping[NodeId, _Space], other: NodeId) -> bool:
    """For one that was never loaded: whether ``other`` has clearly more room than its home."""
    here, there = space[status.node].free_bytes, space[other].free_bytes
    if not is_fresh(status) or here is None or there is None:
        return False
    return there - here > (status.footprint_bytes or 0)


def _quality(
    node: NodeStatus, status: ModelStatus, space: _Space, profile: ModelProfile | None
) -> tuple[int, bool]:
    """Less is better: the kind of node, then whether something would have to go for it."""
    wanted_bytes = status.needed_bytes if takes_main_memory(status, node) else 0
    if space.usable_bytes is not None and wanted_bytes > space.usable_bytes:
        return _TOO_SMALL, True
    preferred = _preferred(status, profile)
    if preferred is not None and node.accelerator == preferred:
        kind = 0
    else:
        kind = 2 if node.accelerator == CPU else 1
    return kind, space.free_bytes is not None and space.free_bytes < wanted_bytes


def _preferred(status: ModelStatus, profile: ModelProfile | None) -> str | None:
    """The kind of node that it is for; None: a GPU of any kind."""
    preferred = None if profile is None else profile.preferred_backend
    return CPU if preferred is None and status.on_host else preferred


def _space(world: WorldSnapshot, config: PlannerConfig) -> dict[NodeId, _Space]:
    occupied_bytes = dict.fromkeys(world.nodes, 0)
    for status in world.models.values():
        node = world.nodes.get(status.node)
        if node is not None and takes_main_memory(status, node):
            occupied_bytes[status.node] += status.occupied_bytes
    space = {}
    for name, node in world.nodes.items():
        most_bytes = usable_bytes(node, config)
        free_bytes = None if most_bytes is None else most_bytes - occupied_bytes[name]
        space[name] = _Space(usable_bytes=most_bytes, free_bytes=free_bytes)
    return space
