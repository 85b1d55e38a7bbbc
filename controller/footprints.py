"""Which of the footprints that are told of a model is believed. Pure.

Measured, else what LocalAI estimates, else what is declared, else the size of its files and a
quarter on top. A single measurement that is far below what is told otherwise may be a
neighbour's doing who left meanwhile: it waits for a second one, since a footprint that is too
large costs a place, and one that is too small a failed load.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from contracts.config import ModelProfile
from contracts.ids import ModelId
from contracts.memory import HOST, FootprintSource, PlaceId, PlaceKind, Split
from contracts.profiles import Estimate
from contracts.world import OCCUPIES_MEMORY, ModelStatus, NodeStatus, WorldSnapshot

WEIGHTS_FACTOR = 1.25
"""Memory over the size of the weights: KV cache, compute buffers and the process take a fifth
to a third on top at usual context sizes."""

FAR = 2.0
"""A measurement that is so many times smaller than what is told wants a second one."""

Told = tuple[int, FootprintSource]


def told_footprint(estimated: int | None, profile: ModelProfile | None) -> Told | None:
    """The best that is told without a measurement, and by whom; None: nobody tells.

    >>> told_footprint(None, ModelProfile(model=ModelId("a"), weights_bytes=1000))
    (1250, <FootprintSource.WEIGHTS: 'weights_size'>)
    """
    if estimated:
        return estimated, FootprintSource.ESTIMATED
    if profile is None:
        return None
    if profile.footprint_bytes is not None:
        return profile.footprint_bytes, FootprintSource.DECLARED
    if profile.weights_bytes:
        return int(profile.weights_bytes * WEIGHTS_FACTOR), FootprintSource.WEIGHTS
    return None


def with_footprint(
    status: ModelStatus, node: NodeStatus, found: Mapping[PlaceId, Estimate], told: Told | None
) -> ModelStatus:
    """``status`` with the footprint that is believed.

    A resident model keeps the one that it has where nothing better is known: what it was
    counted with is what it gives back.
    """
    split = {place: round(one.value) for place, one in found.items()}
    if split:
        count = min(one.count for one in found.values())
        size = main_bytes(split, node)
        if count == 1 and told is not None and told[0] > FAR * size:
            return replace(status, footprint_bytes=told[0], split={}, footprint_source=told[1])
        return measured(status, node, split)
    is_counted = status.residency in OCCUPIES_MEMORY and status.footprint_bytes is not None
    is_given = status.footprint_source is None and status.footprint_bytes is not None
    if told is None or is_counted or is_given:
        return status
    return replace(status, footprint_bytes=told[0], split={}, footprint_source=told[1])


def measured(status: ModelStatus, node: NodeStatus, split: Split) -> ModelStatus:
    """``status`` with a footprint that was measured."""
    return replace(
        status,
        footprint_bytes=main_bytes(split, node),
        split=split,
        footprint_source=FootprintSource.MEASURED,
        on_host=status.on_host or _is_on_host(split, node),
    )


def main_bytes(split: Split, node: NodeStatus) -> int:
    """What a split takes of the memory that the node's one number is about."""
    has_cards = any(place.kind is PlaceKind.GPU for place in node.places)
    if has_cards and any(place != HOST for place in split):
        return sum(size for place, size in split.items() if place != HOST)
    return sum(split.values())


def reconfigured(world: WorldSnapshot, models: Iterable[ModelId]) -> WorldSnapshot:
    """The world after these models got another configuration: what was measured is of the old one.

    So is a load that failed for memory: the new one may fit.
    """
    changed = {}
    for name in models:
        status = world.models.get(name)
        if status is not None:
            is_measured = status.footprint_source is FootprintSource.MEASURED
            gone = is_measured and status.residency not in OCCUPIES_MEMORY
            changed[name] = replace(
                status,
                out_of_memory_bytes=None,
                out_of_memory_until_s=None,
                footprint_bytes=None if gone else status.footprint_bytes,
                split={} if gone else status.split,
                footprint_source=None if gone else status.footprint_source,
            )
    return replace(world, models={**world.models, **changed}) if changed else world


def _is_on_host(split: Split, node: NodeStatus) -> bool:
    has_cards = any(place.kind is PlaceKind.GPU for place in node.places)
    return has_cards and set(split) == {HOST}
