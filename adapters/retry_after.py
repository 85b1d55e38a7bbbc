"""``Retry-After`` as seconds."""

from __future__ import annotations

MAX_S = 86_400.0
"""Nobody who says more than a day can mean it."""

_MAX_DIGITS = 15


def seconds_told(text: str | None) -> float | None:
    """The seconds that the header says; None for a date or nonsense, which is no time."""
    told = (text or "").strip()
    # Plain digits alone: "²" is a digit to Python as well, and no number.
    if not (told.isascii() and told.isdecimal()):
        return None
    return MAX_S if len(told) > _MAX_DIGITS else min(MAX_S, float(told))
