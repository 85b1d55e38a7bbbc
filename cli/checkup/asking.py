"""How long an answer takes."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable

_ROUNDS = 7


async def median_s(call: Callable[[], Awaitable[object]]) -> float:
    """The median of a few calls, one after the other."""
    taken = []
    for _ in range(_ROUNDS):
        began_s = time.perf_counter()
        await call()
        taken.append(time.perf_counter() - began_s)
    return statistics.median(taken)
