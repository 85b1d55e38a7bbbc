"""Loads and unloads by cause, how long they took, and what became of prefetches."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from api.control.kpis.rings import TwoRings, Window
from api.control.kpis.spread import Spread
from contracts.events import (
    AnyEvent,
    LoadCause,
    ModelLoaded,
    ModelLoadFailed,
    ModelUnloaded,
    RequestDispatched,
    UnloadCause,
)
from contracts.ids import ModelId

RELOAD_S = 300.0
"""A model that is loaded again so soon after its unload should have stayed: thrash."""


@dataclass(slots=True)
class Loads:
    """Counts of one bucket. ``used`` and ``wasted`` are of prefetches whose fate is known."""

    by_cause: Counter[LoadCause] = field(default_factory=Counter)
    unloads: Counter[UnloadCause] = field(default_factory=Counter)
    failed: int = 0
    reloads: int = 0
    used: int = 0
    wasted: int = 0
    took: Spread = field(default_factory=Spread)

    def merge(self, other: Loads) -> None:
        """Take in what ``other`` counted."""
        self.by_cause.update(other.by_cause)
        self.unloads.update(other.unloads)
        self.failed += other.failed
        self.reloads += other.reloads
        self.used += other.used
        self.wasted += other.wasted
        self.took.merge(other.took)

    @property
    def loaded(self) -> int:
        """Loads that ended well."""
        return self.by_cause.total()

    @property
    def precision(self) -> float | None:
        """Prefetches that were used, of those whose fate is known; None: of none it is."""
        settled = self.used + self.wasted
        return self.used / settled if settled else None

    @property
    def recall(self) -> float | None:
        """Loads that a prefetch had ready in time, of all that a request needed; None: of none."""
        waited = self.by_cause[LoadCause.DEMAND] + self.by_cause[LoadCause.GATEWAY]
        needed = self.used + waited
        return self.used / needed if needed else None


@dataclass(slots=True)
class _Model:
    rings: TwoRings[Loads] = field(default_factory=lambda: TwoRings(Loads))
    cause: LoadCause | None = None
    used: bool = False
    unloaded_at_s: float | None = None


class LoadBook:
    """Folds what happens to models; ``max_models`` as in ``TrafficBook``."""

    def __init__(self, *, max_models: int = 500) -> None:
        self._max_models = max_models
        self._models: OrderedDict[ModelId, _Model] = OrderedDict()
        self._all: TwoRings[Loads] = TwoRings(Loads)
        self.forgotten = 0

    def observe(self, event: AnyEvent) -> None:
        """Take in one event; those that are not about residency change nothing."""
        match event:
            case ModelLoaded():
                self._loaded(event)
            case ModelLoadFailed():
                for cell in self._cells(event.model, event.at_s):
                    cell.failed += 1
            case ModelUnloaded():
                self._unloaded(event)
            case RequestDispatched() if event.model is not None and event.model in self._models:
                self._used(event.model, event.at_s)
            case _:
                pass

    def of(self, window: Window, now_s: float, model: ModelId | None = None) -> Loads:
        """The sums of a window, of one model or of all."""
        if model is None:
            rings: TwoRings[Loads] | None = self._all
        else:
            known = self._models.get(model)
            rings = None if known is None else known.rings
        return summed(() if rings is None else rings.over(now_s, window.length_s))

    def _loaded(self, event: ModelLoaded) -> None:
        state = self._of(event.model)
        is_reload = state.unloaded_at_s is not None and event.at_s - state.unloaded_at_s <= RELOAD_S
        state.cause, state.used, state.unloaded_at_s = event.cause, False, None
        for cell in self._cells(event.model, event.at_s):
            cell.by_cause[event.cause] += 1
            cell.reloads += is_reload
            if event.load_s is not None:
                cell.took.add(event.load_s)

    def _unloaded(self, event: ModelUnloaded) -> None:
        state = self._of(event.model)
        is_wasted = state.cause is LoadCause.PREFETCH and not state.used
        state.cause, state.unloaded_at_s = None, event.at_s
        for cell in self._cells(event.model, event.at_s):
            cell.unloads[event.cause] += 1
            cell.wasted += is_wasted

    def _used(self, model: ModelId, at_s: float) -> None:
        state = self._models[model]
        if state.used or state.cause is None:
            return
        state.used = True
        if state.cause is LoadCause.PREFETCH:
            for cell in self._cells(model, at_s):
                cell.used += 1

    def _cells(self, model: ModelId, at_s: float) -> list[Loads]:
        return [*self._of(model).rings.at(at_s), *self._all.at(at_s)]

    def _of(self, model: ModelId) -> _Model:
        state = self._models.get(model)
        if state is None:
            state = self._models[model] = _Model()
            if len(self._models) > self._max_models:
                self._models.popitem(last=False)
                self.forgotten += 1
        else:
            self._models.move_to_end(model)
        return state


def summed(parts: Iterable[Loads]) -> Loads:
    """All of them together."""
    whole = Loads()
    for part in parts:
        whole.merge(part)
    return whole
