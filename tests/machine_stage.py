"""A controller on a machine whose memory is real: cards, RAM, and other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contracts.events import AnyEvent
from contracts.ids import ModelId
from contracts.memory import PlaceId, Split
from contracts.messages import UnloadRequested
from contracts.profiles import MeasuredProfile, Measures
from simulator.memory_machine import MemoryMachine
from tests import worlds
from tests.controller_stage import NODE, A, B, C, Stage

GIB = 1024**3
CARD = PlaceId("GPU-0")
OTHER = PlaceId("GPU-1")


class Machine(Stage):
    """Models of 10, 8 and 3 GiB that load in 5 s, on one card of 24 GiB, reserve 0."""

    def __init__(
        self,
        splits: Mapping[ModelId, Split] | None = None,
        *,
        cards: Mapping[PlaceId, int] | None = None,
        estimates: Mapping[ModelId, int] | None = None,
        machine: Mapping[str, Any] | None = None,
        **planner: Any,
    ) -> None:
        super().__init__(**planner)
        known = splits or {A: {CARD: 10 * GIB}, B: {CARD: 8 * GIB}, C: {CARD: 3 * GIB}}
        if estimates is None:
            estimates = {name: sum(split.values()) for name, split in known.items()}
        self.machine = MemoryMachine(
            self.clock,
            dict.fromkeys(known, 5.0),
            splits=known,
            cards={CARD: 24 * GIB} if cards is None else cards,
            estimates=estimates,
            **(machine or {}),
        )
        self.server = self.machine

    async def load(self, *models: ModelId, seconds: float = 8.0) -> None:
        """Somebody asks for them, one after the other."""
        for number, model in enumerate(models):
            request = f"{model}-{self.now_s:g}-{number}"
            await self.log(self.received(request, model))
            await self.want(model, request)
            await self.beats(seconds)
            await self.log(self.dispatched(request, model, cold=True))
            await self.log(self.completed(request, model))
            await self.beats(0.5)

    def completed(self, request: str, model: ModelId) -> AnyEvent:
        return worlds.completed(request, model, self.now_s)

    async def operator_unload(self, model: ModelId) -> None:
        await self.to_controller.send(UnloadRequested(model=model, at_s=self.now_s))
        await self.beats(15.0)

    async def learn(self, model: ModelId, split: Split) -> None:
        """It was measured before, by an earlier controller."""
        measures = Measures(node=NODE, footprints=(split, split), footprint_count=2, at_s=1.0)
        await self.profiles.put((MeasuredProfile(model=model, measures=(measures,)),))
        await self.stop()
        await self.start("two")
        await self.beats(6.0)

    def begun(self, model: ModelId) -> int:
        return sum(what == "load_started" and who == model for _, what, who in self.calls())
