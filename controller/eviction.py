"""Which victims make room for one load: greedy in the policy's order, then give back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from contracts.ids import ModelId
from contracts.memory import PlaceId
from contracts.world import ModelStatus, Residency, WorldSnapshot
from controller.memory import ALL_CARDS, Room
from controller.policies.base import Victim


def idle_models(world: WorldSnapshot, models: tuple[ModelStatus, ...]) -> tuple[ModelStatus, ...]:
    """Those that may be evicted: hot, nothing in flight or waiting, not pinned, wanted, spared."""
    return tuple(
        status
        for status in models
        if status.residency is Residency.HOT
        and not status.in_flight
        and not status.waiting
        and not status.pinned
        and status.model not in world.operator_loads
        and not is_spared(status, world.taken_at_s)
    )


def is_spared(status: ModelStatus, now_s: float) -> bool:
    """Whether an unload of it was given up too recently to try again."""
    return status.spared_until_s is not None and now_s < status.spared_until_s


def choose_for(
    status: ModelStatus,
    ranked: tuple[Victim, ...],
    room: Room,
    models: Mapping[ModelId, ModelStatus],
    *,
    whole_set: bool = True,
) -> tuple[Victim, ...] | None:
    """The fewest of ``ranked``, taken in order, that make room for it; None if all do not.

    Every place that it takes must have room. Taken one by one until bytes and slots suffice;
    then, from the greatest loss down (the last in order among equals), each that turned out
    not to be needed is given back, unless ``whole_set`` is False. Exact knapsack sets bring
    nothing over it.
    """
    short = room.shortage(status)
    losses = [victim.loss for victim in ranked]
    slots_needed = room.slots_short(status)
    if is_one_number(short, room, [models[victim.model] for victim in ranked]):
        chosen = pick(
            [victim.freed_bytes for victim in ranked],
            losses,
            short.get(ALL_CARDS, 0),
            slots_needed,
            whole_set=whole_set,
        )
    else:
        chosen = pick_places(
            [room.freed(models[victim.model]) for victim in ranked],
            losses,
            short,
            slots_needed,
            whole_set=whole_set,
        )
    return None if chosen is None else tuple(ranked[place] for place in chosen)


def is_one_number(short: Mapping[PlaceId, int], room: Room, victims: Sequence[ModelStatus]) -> bool:
    """Whether the node's one number is all that has to be looked at."""
    if any(place != ALL_CARDS for place in short):
        return False
    return room.node is None or not any(status.on_host for status in victims)


def pick_places(
    freed: Sequence[Mapping[PlaceId, int]],
    losses: Sequence[float],
    short: Mapping[PlaceId, int],
    slots_needed: int,
    *,
    whole_set: bool = True,
) -> list[int] | None:
    """``pick`` where several places are short: who frees none of what is missing stays."""
    missing = dict(short)
    chosen: list[int] = []
    for at, gives in enumerate(freed):
        is_short = any(missing.get(place, 0) > 0 and size for place, size in gives.items())
        if not is_short and len(chosen) >= slots_needed:
            continue
        chosen.append(at)
        for place, size in gives.items():
            if place in missing:
                missing[place] -= size
    if any(rest > 0 for rest in missing.values()) or len(chosen) < slots_needed:
        return None
    if whole_set:
        for at in sorted(chosen, key=lambda at: (-losses[at], -at)):
            without = {place: rest + freed[at].get(place, 0) for place, rest in missing.items()}
            if all(rest <= 0 for rest in without.values()) and len(chosen) > slots_needed:
                chosen.remove(at)
                missing = without
    return chosen


def pick(
    freed_bytes: Sequence[int],
    losses: Sequence[float],
    bytes_needed: int,
    slots_needed: int,
    *,
    whole_set: bool = True,
) -> list[int] | None:
    """``choose_for`` on plain numbers: places of those that go, in order."""
    chosen: list[int] = []
    freed = 0
    for place, size in enumerate(freed_bytes):
        if freed >= bytes_needed and len(chosen) >= slots_needed:
            break
        chosen.append(place)
        freed += size
    if freed < bytes_needed or len(chosen) < slots_needed:
        return None
    if whole_set:
        for place in sorted(chosen, key=lambda place: (-losses[place], -place)):
            if freed - freed_bytes[place] >= bytes_needed and len(chosen) > slots_needed:
                chosen.remove(place)
                freed -= freed_bytes[place]
    return chosen


def names(victims: tuple[Victim, ...]) -> tuple[ModelId, ...]:
    """Their models."""
    return tuple(victim.model for victim in victims)
