"""Which victims make room for one load: greedy in the policy's order, then give back."""

from __future__ import annotations

from collections.abc import Sequence

from contracts.ids import ModelId
from contracts.world import ModelStatus, Residency, WorldSnapshot
from controller.memory import Room
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


def choose(
    ranked: tuple[Victim, ...], room: Room, wanted_bytes: int, *, whole_set: bool = True
) -> tuple[Victim, ...] | None:
    """The fewest of ``ranked``, taken in order, that make room; None if all do not.

    Taken one by one until bytes and slots suffice; then, from the greatest loss down (the
    last in order among equals), each that turned out not to be needed is given back, unless
    ``whole_set`` is False. Exact knapsack sets bring nothing over it.
    """
    chosen = pick(
        [victim.freed_bytes for victim in ranked],
        [victim.loss for victim in ranked],
        room.missing_bytes(wanted_bytes),
        room.missing_slots(),
        whole_set=whole_set,
    )
    return None if chosen is None else tuple(ranked[place] for place in chosen)


def pick(
    freed_bytes: Sequence[int],
    losses: Sequence[float],
    bytes_needed: int,
    slots_needed: int,
    *,
    whole_set: bool = True,
) -> list[int] | None:
    """``choose`` on plain numbers: places of those that go, in order."""
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
