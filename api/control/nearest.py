"""Which known name was probably meant. No clock, no I/O."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_MAX_COMPARED = 5000
_MIN_PART = 3
"""Shorter pieces are in so many names that they tell nothing."""


def nearest_names(name: str, known: Iterable[str], *, count: int = 3) -> tuple[str, ...]:
    """Up to ``count`` known names that look like ``name``, the most alike first.

    Names that begin with it or hold it come first, since people shorten more than they misspell.
    """
    wanted = name.lower()[:200]
    lowered: dict[str, str] = {}
    for candidate in sorted(set(known))[:_MAX_COMPARED]:
        lowered.setdefault(candidate.lower(), candidate)
    holding = [other for other in lowered if len(wanted) >= _MIN_PART and wanted in other]
    holding.sort(key=lambda other: (not other.startswith(wanted), len(other), other))
    alike = difflib.get_close_matches(wanted, lowered, n=count, cutoff=0.5)
    ranked = dict.fromkeys([*holding, *alike])
    return tuple(lowered[other] for other in ranked)[:count]
