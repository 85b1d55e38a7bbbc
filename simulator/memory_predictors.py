# ruff: noqa: D102 - the port says what each method does
"""``PredictorRoster`` in memory."""

from __future__ import annotations

from contracts.predictors import FORGOTTEN_AFTER_S, MAX_PREDICTORS, PredictorBeat
from simulator.memory_streams import Faulty


class MemoryPredictorRoster(Faulty):
    """By the same rules as the one in Redis."""

    def __init__(self) -> None:
        self._beats: dict[str, PredictorBeat] = {}

    async def beat(self, beat: PredictorBeat) -> None:
        self._check()
        self._beats[beat.name] = beat
        known = sorted(self._beats.values(), key=lambda other: other.at_s, reverse=True)
        self._beats = {
            other.name: other
            for other in known[:MAX_PREDICTORS]
            if beat.at_s - other.at_s <= FORGOTTEN_AFTER_S
        }

    async def leave(self, name: str) -> None:
        self._check()
        self._beats.pop(name, None)

    async def all(self) -> tuple[PredictorBeat, ...]:
        self._check()
        return tuple(sorted(self._beats.values(), key=lambda beat: beat.name))
