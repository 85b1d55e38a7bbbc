"""Recent quantiles of what requests and loads took: no model of them, only what was seen."""

from __future__ import annotations

import math
from collections import deque

from contracts.forecasts import QUANTILE_LEVELS, Signal

METHOD = "recent_quantiles"

SIGNALS: tuple[Signal, ...] = (Signal.TTFT_S, Signal.TOKENS_PER_S, Signal.LOAD_S)
READY_VALUES = 5
"""Below this many the quantiles are mere guesses."""
_KEPT = 64
"""Values kept per model and signal: enough for the 0.9 quantile, few enough to forget a change."""


class RecentValues:
    """The last values of each signal of one model."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[Signal, deque[float]] = {}

    def add(self, signal: Signal, value: float) -> None:
        """Take in one value; what is not finite or below 0 is left out."""
        if math.isfinite(value) and value >= 0.0:
            self._values.setdefault(signal, deque(maxlen=_KEPT)).append(value)

    def count(self, signal: Signal) -> int:
        """Values kept of ``signal``."""
        return len(self._values.get(signal, ()))

    def mean(self, signal: Signal) -> float:
        """Their mean; there must be one."""
        values = self._values[signal]
        return math.fsum(values) / len(values)

    def quantiles(self, signal: Signal) -> tuple[float, ...]:
        """Their values at ``QUANTILE_LEVELS``, never decreasing; there must be one."""
        ordered = sorted(self._values[signal])
        last = len(ordered) - 1
        return tuple(
            ordered[min(last, math.floor(level * len(ordered)))] for level in QUANTILE_LEVELS
        )
