"""What each card and the host's RAM hold, and who of it: pure.

Of every reading the part that is not our models' is what others use. While something of ours
is on its way in or out nobody can tell how much of it is there already, so that only two bounds
are sure: all of it counted as ours, and none of it. Between them the last certain figure stands::

    low  = used - footprints of all that may be there
    high = used - footprints of what is there for sure
    others = min(max(others before, low), high)

Worked example: 24 GB, others 4, a model of 10 leaves. Its process has ended, LocalAI has not
answered yet: used 4, low = max(0, 4 - 10) = 0, high = 4. Before it was 4, so it is 4, not 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from contracts.memory import HOST, PlaceId, PlaceKind, PlaceStatus, Split
from contracts.readings import GpuReading, ProbeReading
from contracts.world import OCCUPIES_MEMORY, ModelStatus, NodeStatus, Residency

_NOT_TOLD: Split = {}
_ON_CPU = frozenset({"", "cpu"})


def read_places(reading: ProbeReading | None) -> tuple[PlaceStatus, ...]:
    """Each place that a budget is kept for; empty where no card or host is told of.

    A card that is cut into instances counts as those; unified memory is one place, and no host
    beside it.
    """
    if reading is None:
        return ()
    cut = {gpu.parent_uuid for gpu in reading.gpus}
    cards = [gpu for gpu in reading.gpus if gpu.uuid not in cut and gpu.memory_total_bytes]
    unified = [gpu for gpu in cards if gpu.is_unified]
    places = [_card(gpu) for gpu in cards if not gpu.is_unified]
    if unified:
        return (*places, _card(unified[0]))
    total = reading.host_memory_total_bytes
    if total:
        available = reading.host_memory_available_bytes
        used = reading.host_memory_used_bytes if available is None else max(0, total - available)
        places.append(
            PlaceStatus(place=HOST, kind=PlaceKind.HOST, total_bytes=total, used_bytes=used)
        )
    return tuple(places)


def _card(gpu: GpuReading) -> PlaceStatus:
    total, free = gpu.memory_total_bytes, gpu.memory_free_bytes
    # What the driver reserves is neither free nor, on new ones, used.
    used = gpu.memory_used_bytes if total is None or free is None else max(0, total - free)
    return PlaceStatus(
        place=PlaceId(gpu.uuid),
        kind=PlaceKind.UNIFIED if gpu.is_unified else PlaceKind.GPU,
        total_bytes=total,
        used_bytes=used,
    )


def split_on(status: ModelStatus, places: Iterable[PlaceStatus]) -> Split:
    """The model's bytes by place of its node; empty where nobody can tell.

    Where it is not told but there is one card alone, it is there; without a card it is in host
    RAM.
    """
    kinds = {place.place: place.kind for place in places}
    if not kinds:
        return _NOT_TOLD
    shared = next((name for name, kind in kinds.items() if kind is PlaceKind.UNIFIED), None)
    host = HOST if shared is None else shared
    if status.split:
        found: dict[PlaceId, int] = {}
        for told, held_bytes in status.split.items():
            place = host if told == HOST else told
            if place in kinds:
                found[place] = found.get(place, 0) + held_bytes
            elif told != HOST:
                # Measured on a card that is not here: elsewhere it may be split otherwise.
                found = {}
                break
        if found:
            return found
    if status.footprint_bytes is None:
        return _NOT_TOLD
    cards = [name for name, kind in kinds.items() if kind is not PlaceKind.HOST]
    if status.on_host or not cards:
        return {host: status.footprint_bytes} if host in kinds else _NOT_TOLD
    return {cards[0]: status.footprint_bytes} if len(cards) == 1 else _NOT_TOLD


def takes_main_memory(status: ModelStatus, node: NodeStatus) -> bool:
    """Whether its footprint is of the memory that the node's one number is about.

    A model on the host of a node with GPUs takes none of theirs.
    """
    if not status.on_host:
        return True
    if node.places:
        return all(place.kind is not PlaceKind.GPU for place in node.places)
    return node.accelerator in _ON_CPU


def used_by_others(used: int | None, before: int, ours: int, settled: int) -> int:
    """What is used beyond our models; ``settled``: footprints of those that are there for sure."""
    if used is None:
        return 0
    low, high = max(0, used - ours), max(0, used - settled)
    return low if ours == settled else min(max(before, low), high)


def main_others(
    node: NodeStatus, models: Sequence[ModelStatus], used: int | None, told: int | None
) -> int:
    """What others use of the node's one number; ``told``: by somebody who sees processes."""
    if told is not None:
        return told
    held = [(m, m.occupied_bytes) for m in models if takes_main_memory(m, node)]
    ours = sum(size for _, size in held)
    settled = sum(size for m, size in held if m.residency is Residency.HOT)
    return used_by_others(used, node.used_by_others_bytes, ours, settled)


def with_others(
    before: tuple[PlaceStatus, ...],
    now: tuple[PlaceStatus, ...],
    models: Sequence[ModelStatus],
    reading: ProbeReading | None,
) -> tuple[PlaceStatus, ...]:
    """``now`` with what others use of each place."""
    known = {place.place: place.used_by_others_bytes for place in before}
    told = {} if reading is None else {gpu.uuid: gpu.used_by_others_bytes for gpu in reading.gpus}
    ours: dict[PlaceId, int] = {}
    settled: dict[PlaceId, int] = {}
    for status in models:
        if status.residency in OCCUPIES_MEMORY:
            for held_in, held_bytes in split_on(status, now).items():
                ours[held_in] = ours.get(held_in, 0) + held_bytes
                if status.residency is Residency.HOT:
                    settled[held_in] = settled.get(held_in, 0) + held_bytes
    found = []
    for place in now:
        name = place.place
        others = told.get(name)
        if others is None:
            others = used_by_others(
                place.used_bytes, known.get(name, 0), ours.get(name, 0), settled.get(name, 0)
            )
        found.append(replace(place, used_by_others_bytes=others))
    return tuple(found)


def guessed_splits(
    models: Sequence[ModelStatus], places: tuple[PlaceStatus, ...]
) -> Mapping[str, Split]:
    """Where resident models are that nobody measured, on a node of several cards.

    What is used on each card beyond the models that are told of is shared out among the others
    in proportion: who was loaded before we looked is most likely there. By name; nothing where
    all are told of.
    """
    cards = [place for place in places if place.kind is not PlaceKind.HOST]
    untold = [
        status
        for status in models
        if status.residency is Residency.HOT
        and status.footprint_bytes
        and not status.on_host
        and not split_on(status, places)
    ]
    if len(cards) < 2 or not untold:
        return {}
    left = {place.place: place.used_bytes or 0 for place in cards}
    for status in models:
        if status.residency is Residency.HOT:
            for name, held_bytes in split_on(status, places).items():
                if name in left:
                    left[name] = max(0, left[name] - held_bytes)
    whole = sum(left.values())
    if not whole:
        return {}
    return {
        status.model: {
            name: share
            for name, bytes_left in left.items()
            if (share := (status.footprint_bytes or 0) * bytes_left // whole)
        }
        for status in untold
    }
