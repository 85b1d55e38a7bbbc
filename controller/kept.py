"""Models that people want resident all the time, and whether they fit together. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.config import ModelProfile, PlannerConfig
from contracts.ids import ModelId, NodeId
from contracts.world import WorldSnapshot
from controller.memory import usable_bytes
from controller.places import takes_main_memory


def overfull(
    world: WorldSnapshot, profiles: Mapping[ModelId, ModelProfile], config: PlannerConfig
) -> dict[NodeId, tuple[int, int]]:
    """Nodes whose preloaded and pinned models take more than may be filled: both, in bytes."""
    wanted: dict[NodeId, int] = {}
    for name, status in world.models.items():
        profile = profiles.get(name)
        is_kept = status.pinned or (profile is not None and (profile.preload or profile.pinned))
        node = world.nodes.get(status.node)
        if is_kept and node is not None and takes_main_memory(status, node):
            wanted[status.node] = wanted.get(status.node, 0) + (status.footprint_bytes or 0)
    found: dict[NodeId, tuple[int, int]] = {}
    for here, size in wanted.items():
        usable = usable_bytes(world.nodes[here], config)
        if usable is not None and size > usable:
            found[here] = (size, usable)
    return found
