"""What a node's memory does between orders: polls, unloads that do not show, failed loads. Pure.

The probe is the truth. What it shows beyond our models is used by others, whoever they are: a
game, an orphan of a model that was stopped, a driver that leaks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from contracts.events import ModelLoaded, ModelLoadFailed, ModelUnloaded, NodeObserved
from contracts.ids import ModelId
from contracts.memory import (
    FootprintSource,
    PlaceStatus,
    Split,
    UnseenMemory,
    is_memory_failure,
)
from contracts.world import ModelStatus, NodeStatus
from controller.footprints import measured
from controller.places import (
    guessed_splits,
    main_others,
    read_places,
    split_on,
    takes_main_memory,
    with_others,
)

UNSEEN_LIMIT_S = 600.0
"""Memory of a stopped model that is not back by then is given up: somebody has to look."""

OUT_OF_MEMORY_S = 1800.0
"""How long a failed load is believed: what took the memory then may be gone, unseen."""

MAX_UNSEEN = 100

_SMALL_BYTES = 64 * 1024**2
"""Less than this is nobody's model: contexts and fragments come and go."""


def observed(node: NodeStatus, models: Sequence[ModelStatus], event: NodeObserved) -> NodeStatus:
    """``node`` with what a poll tells of its memory; ``models`` are as the poll found them."""
    total, used = event.memory_total_bytes, event.memory_used_bytes
    read = read_places(event.reading)
    places = with_others(node.places, read, models, event.reading)
    now = replace(node, places=places)
    others = main_others(now, models, used, event.used_by_others_bytes)
    unseen, given_up_bytes = _still_unseen(node.unseen, others, event.at_s)
    return replace(
        now,
        memory_total_bytes=total,
        memory_used_bytes=used,
        used_by_others_bytes=others,
        unseen=unseen,
        leaked_bytes=node.leaked_bytes + given_up_bytes,
    )


def guessed(node: NodeStatus, models: Sequence[ModelStatus]) -> Mapping[ModelId, Split]:
    """Splits of residents that nobody told, where there are several cards."""
    found = guessed_splits(models, node.places)
    return {ModelId(name): split for name, split in found.items()}


def _still_unseen(
    unseen: tuple[UnseenMemory, ...], others: int, now_s: float
) -> tuple[tuple[UnseenMemory, ...], int]:
    """What is not back yet, and how much is given up."""
    kept: list[UnseenMemory] = []
    given_up_bytes = 0
    for one in unseen:
        left = min(one.held_bytes, others - one.others_bytes)
        if left < min(_SMALL_BYTES, one.held_bytes):
            continue
        if now_s - one.since_s >= UNSEEN_LIMIT_S:
            given_up_bytes += left
        else:
            kept.append(replace(one, held_bytes=left))
    return tuple(kept), given_up_bytes


def unloaded(node: NodeStatus, status: ModelStatus, event: ModelUnloaded) -> NodeStatus:
    """``node`` after a model has left it; ``status`` is as it was before.

    What the probe did not show as free counts as used by others, until a poll knows better.
    """
    size, freed = status.occupied_bytes, event.freed_bytes
    if event.memory_seen:
        if freed is None or status.footprint_source is not FootprintSource.MEASURED:
            return node
        return replace(node, leaked_bytes=max(0, node.leaked_bytes + size - freed))
    held = max(0, size - (freed or 0))
    if not held:
        return node
    others = node.used_by_others_bytes
    entry = UnseenMemory(
        model=event.model, held_bytes=held, since_s=event.at_s, others_bytes=others
    )
    main = takes_main_memory(status, node)
    split = split_on(status, node.places)
    return replace(
        node,
        used_by_others_bytes=others + held if main else others,
        places=tuple(_holding(place, split, held, size) for place in node.places),
        unseen=(*node.unseen, entry)[-MAX_UNSEEN:] if main else node.unseen,
    )


def _holding(place: PlaceStatus, split: Split, held: int, size: int) -> PlaceStatus:
    share = split.get(place.place, 0) * held // size
    if not share:
        return place
    return replace(place, used_by_others_bytes=place.used_by_others_bytes + share)


def loaded(status: ModelStatus, node: NodeStatus, event: ModelLoaded) -> ModelStatus:
    """``status`` with what the load of it says of its size, if it says anything."""
    if event.split:
        return measured(status, node, event.split)
    if event.footprint_bytes is None:
        return status
    return replace(status, footprint_bytes=event.footprint_bytes)


def failed_load(status: ModelStatus, node: NodeStatus, event: ModelLoadFailed) -> ModelStatus:
    """``status`` with what a load that failed for memory tells of its size; else as it is.

    It needs more than was free: the greatest of what was free when it failed is remembered.
    """
    if not is_memory_failure(event.error):
        return status
    free = event.free_bytes
    if free is None and node.memory_total_bytes is not None and node.memory_used_bytes is not None:
        free = max(0, node.memory_total_bytes - node.memory_used_bytes)
    return replace(
        status,
        out_of_memory_bytes=max(status.out_of_memory_bytes or 0, free or 0),
        out_of_memory_until_s=event.at_s + OUT_OF_MEMORY_S,
    )


def forgets_failure(status: ModelStatus, now_s: float) -> bool:
    """Whether a load that failed for memory is so long ago that it says nothing any more."""
    until_s = status.out_of_memory_until_s
    return until_s is not None and now_s >= until_s
