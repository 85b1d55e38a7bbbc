"""A node's memory as people see it: each card and host RAM, and what did not come back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypedDict

from api.control import schemas
from contracts.world import OCCUPIES_MEMORY, ModelStatus, NodeStatus


class MemoryViews(TypedDict):
    """Fields of ``NodeView``."""

    places: list[schemas.PlaceView]
    unseen: list[schemas.UnseenView]
    leaked_bytes: int


def memory_views(node: NodeStatus, models: Iterable[ModelStatus]) -> MemoryViews:
    """What ``NodeView`` says of memory beyond the one number."""
    splits = [status.split for status in models if status.residency in OCCUPIES_MEMORY]
    return MemoryViews(
        places=[
            schemas.PlaceView(
                id=place.place,
                kind=place.kind,
                total_bytes=place.total_bytes,
                used_bytes=place.used_bytes,
                used_by_others_bytes=place.used_by_others_bytes,
                occupied_bytes=sum(split.get(place.place, 0) for split in splits),
            )
            for place in node.places
        ],
        unseen=[
            schemas.UnseenView(model=one.model, held_bytes=one.held_bytes, since_s=one.since_s)
            for one in node.unseen
        ],
        leaked_bytes=node.leaked_bytes,
    )
