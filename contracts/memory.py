"""Where memory is, how it is told, and how failures for want of it are recognised. Pure.

A budget is a vector: one entry per GPU card (by its UUID) and one for host RAM. A model sits
on one card, is split over several, or sits in host RAM; it fits if every place fits.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NewType

from contracts.ids import ModelId

PlaceId = NewType("PlaceId", str)
"""A GPU card's UUID, or ``HOST``."""

HOST = PlaceId("host")

Split = Mapping[PlaceId, int]
"""Bytes by place."""


class PlaceKind(StrEnum):
    """What kind of memory a place is."""

    GPU = "gpu"
    HOST = "host"
    UNIFIED = "unified"
    """GPU and host share it: what a model keeps in either counts here."""


class FootprintSource(StrEnum):
    """Where a footprint comes from, the most trusted first."""

    MEASURED = "measured"
    ESTIMATED = "localai_estimate"
    DECLARED = "declared"
    WEIGHTS = "weights_size"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceStatus:
    """One place of a node as it was last read. None: not told.

    Page cache is not used memory: ``used_bytes`` is the total less what is free or available.
    ``used_by_others_bytes`` is what is used beyond our own models.
    """

    place: PlaceId
    kind: PlaceKind
    total_bytes: int | None = None
    used_bytes: int | None = None
    used_by_others_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class UnseenMemory:
    """A model was stopped, but the probe has not shown its memory: it counts as used by others.

    Attributes
    ----------
    held_bytes : int
        What is not back yet.
    since_s : float
        When LocalAI said that it had stopped.
    others_bytes : int
        What others used before: once no more is used, it is back.
    """

    model: ModelId
    held_bytes: int
    since_s: float
    others_bytes: int


_MEMORY_WORDS = re.compile(
    r"out[ _-]?of[ _-]?(?:device[ _-]?|host[ _-]?)?memory"
    r"|failed to allocate|unable to allocate|cannot allocate memory|could not allocate"
    r"|alloc(?:ation)? failed|cudamalloc failed|hipmalloc failed|alloc_failed|bad_alloc"
    r"|(?:insufficient|not enough) (?:\w+ )?memory"
    r"|no available memory for the cache"
    r"|less than desired gpu memory utilization"
    r"|larger than the available (?:kv cache )?memory"
    r"|cuda error|hip error",
    re.IGNORECASE,
)
_OTHER_CAUSES = re.compile(
    r"no kernel image|invalid device|illegal memory access|driver version"
    r"|initialization error|no cuda-capable device|device-side assert",
    re.IGNORECASE,
)
_MOST_CHARS = 4000


def is_memory_failure(message: str) -> bool:
    """Whether a failed load says that it found too little memory.

    >>> is_memory_failure("cudaMalloc failed: out of memory")
    True
    >>> is_memory_failure("CUDA error: no kernel image is available for execution")
    False
    """
    text = message[:_MOST_CHARS]
    return bool(_MEMORY_WORDS.search(text)) and not _OTHER_CAUSES.search(text)
