# ruff: noqa: D102 - the port says what each method does
"""What was measured of models, in memory."""

from __future__ import annotations

from collections.abc import Mapping

from contracts.ids import ModelId
from contracts.profiles import MAX_PROFILES, MeasuredProfile
from simulator.memory_streams import Faulty


class MemoryProfileStore(Faulty):
    """``ProfileStore`` in memory."""

    def __init__(self, *, max_models: int = MAX_PROFILES) -> None:
        self._profiles: dict[ModelId, MeasuredProfile] = {}
        self._max_models = max_models
        self.dropped = 0

    async def put(self, profiles: tuple[MeasuredProfile, ...]) -> None:
        self._check()
        self._profiles.update((profile.model, profile) for profile in profiles)
        oldest = sorted(self._profiles.values(), key=lambda one: (one.at_s, one.model))
        for profile in oldest[: max(0, len(oldest) - self._max_models)]:
            del self._profiles[profile.model]
            self.dropped += 1

    async def get(self, model: ModelId) -> MeasuredProfile | None:
        self._check()
        return self._profiles.get(model)

    async def get_all(self) -> Mapping[ModelId, MeasuredProfile]:
        self._check()
        return dict(self._profiles)

    async def remove(self, models: tuple[ModelId, ...]) -> None:
        self._check()
        for model in models:
            self._profiles.pop(model, None)
