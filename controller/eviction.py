"""Which victims make room for one load: greedy in the policy's order, then give back."""

from __future__ import annotations

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


def choose(ranked: tuple[Victim, ...], room: Room, wanted_bytes: int) -> tuple[Victim, ...] | None:
    """The fewest of ``ranked``, taken in order, that make room; None if all do not.

    Taken one by one until bytes and slots suffice; then, from the greatest loss down (the
    last in order among equals), each that turned out not to be needed is given back. Exact
    knapsack sets bring nothing over it.
    """
    bytes_needed, slots_needed = room.missing_bytes(wanted_bytes), room.missing_slots()
    chosen: list[Victim] = []
    for victim in ranked:
        if _enough(chosen, bytes_needed, slots_needed):
            break
        chosen.append(victim)
    if not _enough(chosen, bytes_needed, slots_needed):
        return None
    by_loss = sorted(enumerate(chosen), key=lambda pair: (-pair[1].loss, -pair[0]))
    for _, victim in by_loss:
        without = [other for other in chosen if other is not victim]
        if _enough(without, bytes_needed, slots_needed):
            chosen = without
    return tuple(chosen)


def names(victims: tuple[Victim, ...]) -> tuple[ModelId, ...]:
    """Their models."""
    return tuple(victim.model for victim in victims)


def _enough(chosen: list[Victim], bytes_needed: int, slots_needed: int) -> bool:
    return (
        sum(victim.freed_bytes for victim in chosen) >= bytes_needed and len(chosen) >= slots_needed
    )
