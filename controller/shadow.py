"""What LocalAI's own LRU would have done with the same requests: a count kept beside the real one.

It is LocalAI as shipped: at most ``limit`` models, least recently used one out, a load takes
the model's load time, and a request that comes before its end is cold. Memory, busy models
and slots are not looked at, which flatters it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from contracts.ids import ModelId


@dataclass(frozen=True, slots=True, kw_only=True)
class ShadowLru:
    """``ready_at_s`` holds each resident model's end of load, least recently used first."""

    arrivals: int = 0
    cold_starts: int = 0
    loads: int = 0
    ready_at_s: Mapping[ModelId, float] = field(default_factory=dict)

    def arrived(self, model: ModelId, at_s: float, *, load_s: float, limit: int) -> ShadowLru:
        """After one more request."""
        resident = dict(self.ready_at_s)
        ready_s = resident.pop(model, None)
        load = ready_s is None
        if load:
            while len(resident) >= max(1, limit):
                del resident[next(iter(resident))]
        resident[model] = at_s + load_s if ready_s is None else ready_s
        return ShadowLru(
            arrivals=self.arrivals + 1,
            cold_starts=self.cold_starts + (resident[model] > at_s),
            loads=self.loads + load,
            ready_at_s=resident,
        )

    def figures(self) -> Mapping[str, float]:
        """For the comparison that people are shown."""
        return {
            "arrivals": self.arrivals,
            "cold_starts": self.cold_starts,
            "loads": self.loads,
        }
