# ruff: noqa: D102 - the port says what each method does
"""An in-memory LocalAI on a machine with cards and RAM of its own, and what goes wrong there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contracts.errors import Transient
from contracts.ids import ModelId
from contracts.memory import HOST, PlaceId, Split
from contracts.ports import Clock, NodeReport
from contracts.readings import GpuReading, ProbeReading
from simulator.memory_model_server import MemoryModelServer

OUT_OF_MEMORY = "failed to load model: could not load model: CUDA error: out of memory"


@dataclass(frozen=True, slots=True)
class Overcommit:
    """A load that began where it could not fit."""

    at_s: float
    model: ModelId
    place: PlaceId


class MemoryMachine(MemoryModelServer):
    """``ModelServer`` whose memory is real: a load that does not fit fails, and says so.

    Parameters
    ----------
    splits : mapping
        What each model takes of each place while it loads and is resident.
    cards : mapping
        Bytes of each card, by its UUID; empty: a machine without GPUs.
    host_bytes : int or None
        Its RAM; None: it is not told.
    estimates : mapping
        What LocalAI thinks that models take; a model that is left out has no estimate.
    tells : bool
        Whether anybody can see this machine's memory.
    unified : bool
        Its card and its RAM are one.

    Attributes
    ----------
    others : dict
        What other programs hold of each place.
    lying, hanging, refusing : set of ModelId
        Unloads that keep the memory, that never answer, and that fail.
    kept : dict
        What stopped models hold on to.
    leaks_bytes : int
        What each unload leaves behind on the first place.
    """

    def __init__(
        self,
        clock: Clock,
        load_s: Mapping[ModelId, float],
        *,
        splits: Mapping[ModelId, Split],
        cards: Mapping[PlaceId, int],
        host_bytes: int | None = None,
        estimates: Mapping[ModelId, int] | None = None,
        tells: bool = True,
        unified: bool = False,
        model_limit: int | None = None,
    ) -> None:
        super().__init__(clock, load_s, model_limit=model_limit)
        self.splits = dict(splits)
        self.cards = dict(cards)
        self.host_bytes = host_bytes
        self.estimates = dict(estimates or {})
        self.tells = tells
        self.unified = unified
        self.others: dict[PlaceId, int] = {}
        self.lying: set[ModelId] = set()
        self.hanging: set[ModelId] = set()
        self.refusing: set[ModelId] = set()
        self.kept: dict[ModelId, Split] = {}
        self.leaks_bytes = 0
        self.overcommits: list[Overcommit] = []
        self.grows_at_load: dict[PlaceId, int] = {}
        self._leaked_bytes = 0

    def used(self, place: PlaceId) -> int:
        """What all hold of it."""
        held = [self.splits.get(m, {}) for m in self._present()] + list(self.kept.values())
        used = sum(split.get(place, 0) for split in held) + self.others.get(place, 0)
        return used + (self._leaked_bytes if place == next(iter(self._totals()), None) else 0)

    def free(self, place: PlaceId) -> int:
        """What nobody holds of it."""
        return self._totals().get(place, 0) - self.used(place)

    def let_go(self, model: ModelId) -> None:
        """What was left of a stopped model ends at last."""
        self.kept.pop(model, None)

    async def load(self, model: ModelId) -> None:
        is_new = model not in self.resident and model not in self._loads
        if is_new and self.fault is None and model in self.load_s:
            for place, size in self.splits.get(model, {}).items():
                if place in self._totals() and size > self.free(place):
                    self.overcommits.append(Overcommit(self._clock.now_s(), model, place))
                    self.fail_loads(model, Transient(OUT_OF_MEMORY, retry_after_s=10.0))
                    break
        await super().load(model)
        for place, size in self.grows_at_load.items():
            self.others[place] = self.others.get(place, 0) + size

    async def unload(self, model: ModelId) -> None:
        if model in self.hanging:
            await self._clock.sleep(45.0)
            raise Transient("no answer in 45 s")
        if model in self.refusing:
            raise Transient("500 internal error")
        was_there = model in self.resident and model not in self.dead
        await super().unload(model)
        if was_there and model in self.lying:
            self.kept[model] = self.splits.get(model, {})
        if was_there:
            self._leaked_bytes += self.leaks_bytes

    async def report(self) -> NodeReport:
        told = await super().report()
        if not self.tells:
            return told
        totals = self._totals()
        cards = [place for place in totals if place != HOST]
        main = cards or [HOST]
        return NodeReport(
            resident=told.resident,
            memory_total_bytes=sum(totals[place] for place in main),
            memory_used_bytes=sum(self.used(place) for place in main),
            model_limit=told.model_limit,
            reading=self._reading(cards),
        )

    async def estimate_footprint_bytes(self, model: ModelId) -> int | None:
        self._check()
        return self.estimates.get(model)

    def _reading(self, cards: list[PlaceId]) -> ProbeReading:
        return ProbeReading(
            at_s=self._clock.now_s(),
            gpus=tuple(
                GpuReading(
                    uuid=place,
                    is_unified=self.unified,
                    memory_total_bytes=self.cards[place],
                    memory_used_bytes=self.used(place),
                    memory_free_bytes=max(0, self.free(place)),
                )
                for place in cards
            ),
            host_memory_total_bytes=self.host_bytes,
            host_memory_available_bytes=None
            if self.host_bytes is None
            else max(0, self.free(HOST)),
        )

    def _totals(self) -> dict[PlaceId, int]:
        host = {} if self.host_bytes is None or self.unified else {HOST: self.host_bytes}
        return {**self.cards, **host}

    def _present(self) -> list[ModelId]:
        return [m for m in {*self.resident, *self._loads} if m not in self.dead]
