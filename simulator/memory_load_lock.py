# ruff: noqa: D102 - the port says what each method does
"""The lock for loads that gateways order alone, in memory."""

from __future__ import annotations

from contracts.ids import ModelId
from contracts.ports import Clock
from simulator.memory_streams import Faulty


class MemoryLoadLock(Faulty):
    """``LoadLock`` in memory. Hold times pass on ``clock``, as real ones would."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._held: dict[ModelId, tuple[str, float]] = {}

    async def take(self, model: ModelId, owner: str, *, hold_s: float) -> bool:
        self._check()
        now_s = self._clock.monotonic_s()
        holder, until_s = self._held.get(model, (owner, now_s))
        if holder != owner and now_s < until_s:
            return False
        self._held[model] = (owner, now_s + hold_s)
        return True

    async def release(self, model: ModelId, owner: str) -> None:
        self._check()
        if self._held.get(model, ("", 0.0))[0] == owner:
            del self._held[model]
