"""The list of ``WorldSnapshot.wishes``: bounded, and without what has run out. Pure."""

from __future__ import annotations

from dataclasses import replace

from contracts.ids import ModelId
from contracts.world import WorldSnapshot

RUNG_S = 5.0
"""Gateways say again each second what they wait for."""

MODEL_S = 60.0
"""So long after a lower rung has answered for it a model is still wanted."""

MAX_WISHES = 1_000


def with_wish(world: WorldSnapshot, model: ModelId, until_s: float) -> WorldSnapshot:
    """The model would be of use until then; one that is not known, or beyond the bound, is not."""
    if model not in world.models or world.wishes.get(model, 0.0) >= until_s:
        return world
    kept = {name: at_s for name, at_s in world.wishes.items() if at_s > world.taken_at_s}
    if len(kept) >= MAX_WISHES and model not in kept:
        return world
    return replace(world, wishes={**kept, model: until_s})
