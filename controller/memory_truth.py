"""What two looks at a node's memory say about a load or an unload between them. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from contracts.ids import ModelId
from contracts.memory import HOST, PlaceId, PlaceKind, Split
from contracts.world import ModelStatus, NodeStatus, Residency, WorldSnapshot
from controller.memory import ALL_CARDS
from controller.places import split_on, takes_main_memory

SMALL_BYTES = 64 * 1024**2
"""What contexts, fragments and rounding come to. Less than that is no model."""

SMALL_HOST_BYTES = 512 * 1024**2
"""Host RAM goes up and down by itself; less than that is not taken for a model's part of it."""

STEADY_RATIO = 0.02
"""Of a place's use: what may come and go while others are called steady."""

BACK_RATIO = 0.5
"""Share of a footprint that has to be free again before an unload counts. Footprints that were
never measured may be twice too large; a process that lives on keeps nearly all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look. ``told``: what those used who are surely not ours, where somebody can tell."""

    at_s: float
    used: Mapping[PlaceId, int]
    kinds: Mapping[PlaceId, PlaceKind] = field(default_factory=dict)
    told: Mapping[PlaceId, int] = field(default_factory=dict)


def sample_of(node: NodeStatus) -> Sample | None:
    """What the last poll read; None: no memory was told."""
    if node.seen_at_s is None or not node.alive:
        return None
    reading = node.reading
    told = (
        {}
        if reading is None
        else {
            PlaceId(gpu.uuid): gpu.used_by_others_bytes
            for gpu in reading.gpus
            if gpu.used_by_others_bytes is not None
        }
    )
    used = {p.place: p.used_bytes for p in node.places if p.used_bytes is not None}
    if not used and node.memory_used_bytes is not None:
        used = {ALL_CARDS: node.memory_used_bytes}
    if not used:
        return None
    kinds = {p.place: p.kind for p in node.places}
    return Sample(at_s=node.seen_at_s, used=used, kinds=kinds, told=told)


def is_steady(first: Sample, second: Sample) -> bool:
    """Whether nobody has moved between two looks: no card's use has changed by much."""
    return all(
        abs(used - first.used.get(place, used)) <= _noise(used)
        for place, used in second.used.items()
        if second.kinds.get(place) is not PlaceKind.HOST
    )


def measured_split(before: Sample, after: Sample) -> Split | None:
    """What a load took between two looks, by place; None where others moved or nothing is told.

    Nobody else of ours may have moved meanwhile: that is the caller's to know.
    """
    if before.used.keys() != after.used.keys():
        return None
    if any(
        abs(others - before.told.get(place, others)) > _noise(others)
        for place, others in after.told.items()
    ):
        return None
    found: dict[PlaceId, int] = {}
    for place, used in after.used.items():
        grown = used - before.used[place]
        if after.kinds.get(place) is PlaceKind.HOST:
            if grown >= SMALL_HOST_BYTES or (grown >= SMALL_BYTES and len(after.used) == 1):
                found[place] = grown
        elif grown < -_noise(used):
            return None
        elif grown >= _least(after):
            found[place] = grown
    return found or None


def _least(sample: Sample) -> int:
    """A model that is alone in its memory may be small; beside cards a context is not a model."""
    return SMALL_BYTES if len(sample.used) > 1 else 1


def expected_back(status: ModelStatus, node: NodeStatus) -> Split:
    """What its unload should free, by place as ``Sample`` names them; empty: not known."""
    if node.places:
        split = split_on(status, node.places)
        if split:
            return split
    if not status.footprint_bytes or not takes_main_memory(status, node):
        return {}
    return {} if node.places else {ALL_CARDS: status.footprint_bytes}


def freed_bytes(before: Sample, after: Sample, expected: Split) -> int | None:
    """By how much the use of those places fell; None where it is not told."""
    known = [place for place in expected if place in before.used and place in after.used]
    if not known:
        return None
    return sum(before.used[place] - after.used[place] for place in known)


def is_back(before: Sample, after: Sample, expected: Split, growth: Split) -> bool:
    """Whether the memory of a stopped model is seen to be free, at every place that it was.

    ``growth`` is what loads that run may have taken meanwhile: in doubt it is theirs.
    """
    return all(
        before.used[place] - after.used[place] >= size * BACK_RATIO - growth.get(place, 0)
        for place, size in expected.items()
        if place in before.used and place in after.used
    )


def others_move(world: WorldSnapshot, status: ModelStatus, begun: Collection[ModelId]) -> bool:
    """Whether another model is on its way in or out on the same node.

    ``begun`` are the loads that have begun: one that waits for its room takes none.
    """
    going = (Residency.DRAINING, Residency.UNLOADING)
    return any(
        other.residency in going or (other.residency is Residency.LOADING and name in begun)
        for name, other in world.models.items()
        if other.node == status.node and name != status.model
    )


def growing(world: WorldSnapshot, status: ModelStatus, begun: Collection[ModelId]) -> Split:
    """What loads that have begun on the same node may take meanwhile, by place."""
    node = world.nodes.get(status.node)
    found: dict[PlaceId, int] = {}
    for other in world.models.values():
        is_there = other.node == status.node and other.model in begun
        if node is not None and is_there and other.residency is Residency.LOADING:
            split = expected_back(other, node) or {ALL_CARDS: other.needed_bytes}
            for place, size in split.items():
                found[place] = found.get(place, 0) + size
    return found


def free_at(node: NodeStatus, status: ModelStatus) -> int | None:
    """What was free for it at the last poll: of its places, else of the one number."""
    split = split_on(status, node.places)
    found = [
        max(0, place.total_bytes - place.used_bytes)
        for place in node.places
        if place.place in split
        and place.place != HOST
        and place.total_bytes is not None
        and place.used_bytes is not None
    ]
    if found:
        return sum(found)
    if node.memory_total_bytes is None or node.memory_used_bytes is None:
        return None
    return max(0, node.memory_total_bytes - node.memory_used_bytes)


def _noise(used: int) -> int:
    return max(SMALL_BYTES, int(used * STEADY_RATIO))
