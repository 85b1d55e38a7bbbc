"""Groups by kind of work in the plan: who belongs to which, what each may fill. Pure.

A group's limit is one more place of the memory vector: a load that would go beyond it is short
there, and only models of the same group give anything back there. So a group makes its room in
itself, and never in another.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from contracts.config import ModelProfile
from contracts.groups import OTHERS_PRECEDENCE, GroupConfig, Groups, group_of
from contracts.ids import ModelId
from contracts.memory import PlaceId, PlaceKind
from contracts.world import ModelStatus, NodeStatus, WorldSnapshot

_PREFIX = "group:"


def place_of(group: str) -> PlaceId:
    """The place that stands for a group's limit."""
    return PlaceId(_PREFIX + group)


def limit_bytes(group: GroupConfig, node: NodeStatus, usable_bytes: int | None) -> int | None:
    """What its models may fill on ``node``; None: as much as there is.

    So many GPUs of those that the node has are that share of what our orders may fill there.
    A group on CPUs alone is bounded by its memory.
    """
    bounds = [group.memory_bytes]
    if group.gpus and usable_bytes is not None:
        cards = sum(place.kind is not PlaceKind.HOST for place in node.places) or 1
        if group.gpus < cards:
            bounds.append(int(usable_bytes * group.gpus / cards))
    return min((bound for bound in bounds if bound is not None), default=None)


def occupied_bytes(models: Iterable[ModelStatus]) -> Mapping[str, int]:
    """What the models of each group take now."""
    taken: dict[str, int] = {}
    for status in models:
        if status.group and status.occupied_bytes:
            taken[status.group] = taken.get(status.group, 0) + status.occupied_bytes
    return taken


def precedence(status: ModelStatus, groups: Groups) -> int:
    """When room is short, the lower number goes first; that of others where it has no group."""
    group = groups.get(status.group)
    return OTHERS_PRECEDENCE if group is None else group.precedence


def said_to_be_on_host(
    world: WorldSnapshot, profiles: Mapping[ModelId, ModelProfile], groups: Groups
) -> frozenset[ModelId]:
    """Models that take no GPU memory by somebody's word: their file's, or their group's."""
    return frozenset(
        name
        for name in world.models
        if _is_said(_group(name, profiles, groups), profiles.get(name), groups)
    )


def with_groups(
    world: WorldSnapshot,
    profiles: Mapping[ModelId, ModelProfile],
    groups: Groups,
    *,
    before: Collection[ModelId] = (),
) -> WorldSnapshot:
    """The same, with each model's group; models of groups without a GPU are on the host.

    ``before``: those that were said to be there, and are no more where nobody says so now.
    """
    changed: dict[ModelId, ModelStatus] = {}
    for name, status in world.models.items():
        group = _group(name, profiles, groups)
        on_host = _is_said(group, profiles.get(name), groups) or (
            status.on_host and name not in before
        )
        if status.group != group or status.on_host != on_host:
            changed[name] = replace(status, group=group, on_host=on_host)
    return replace(world, models={**world.models, **changed}) if changed else world


def _group(name: ModelId, profiles: Mapping[ModelId, ModelProfile], groups: Groups) -> str:
    profile = profiles.get(name)
    return group_of(name, None if profile is None else profile.modality, groups)


def _is_said(group: str, profile: ModelProfile | None, groups: Groups) -> bool:
    by_file = profile is not None and profile.on_host
    return by_file or (bool(group) and groups[group].is_cpu_only)
