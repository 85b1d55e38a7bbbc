"""The moments at which scores and weights are learned: whole multiples of one step."""

from __future__ import annotations

import math
from collections.abc import Iterator


def grid(at_s: float, step_s: float) -> float:
    """The last such moment at or before ``at_s``."""
    return math.floor(at_s / step_s) * step_s


def steps_between(made_s: float, until_s: float, step_s: float, *, most: int) -> Iterator[float]:
    """Those after ``made_s`` up to ``until_s``; of more than ``most`` only the last."""
    made, last = round(made_s / step_s), math.floor(until_s / step_s)
    first = made + 1 if last - made <= most else last
    for number in range(first, last + 1):
        yield number * step_s
