"""One node as a pure state machine: memory, loads and slots.

It keeps the accounts and refuses what is impossible; it never decides what should be loaded
or evicted. ``simulator/localai.py`` puts LocalAI's own rules on top, the closed-loop
simulation puts policies on top. Time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from contracts.world import Residency

RequestT = TypeVar("RequestT", bound=Hashable)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What a model costs.

    Attributes
    ----------
    footprint_bytes : int
        Memory it holds from the start of its load until it is unloaded.
    load_s : float
        Time to load its weights.
    parallel : int
        Requests that it serves at once; more of them wait, first in first out.
    """

    name: str
    footprint_bytes: int
    load_s: float
    parallel: int = 1

    def __post_init__(self) -> None:
        if self.footprint_bytes < 0 or self.load_s < 0 or self.parallel < 1:
            raise ValueError(
                f"model {self.name!r}: footprint and load time must not be negative, "
                "parallel must be at least 1"
            )


class Cluster(Generic[RequestT]):
    """Memory, loads and slots of one node.

    A model is ``COLD``, ``LOADING`` or ``HOT``. Requests of a model that is not hot wait in
    its queue; ``start_ready`` moves them into slots once it is.

    Parameters
    ----------
    specs : iterable of ModelSpec
        The models that exist; ``add`` takes more later.
    capacity_bytes : int, optional
        Memory of the node. None: there is always room.
    load_slots : int, optional
        Loads that may run at once. None: as many as are asked for.
    """

    def __init__(
        self,
        specs: Iterable[ModelSpec] = (),
        *,
        capacity_bytes: int | None = None,
        load_slots: int | None = None,
    ) -> None:
        if capacity_bytes is not None and capacity_bytes < 0:
            raise ValueError("capacity_bytes must not be negative")
        self.capacity_bytes = capacity_bytes
        self.load_slots = load_slots
        self._models: dict[str, _Model[RequestT]] = {}
        self._resident: dict[str, None] = {}
        self._loading: dict[str, None] = {}
        self._used_bytes = 0
        self._others_bytes = 0
        for spec in specs:
            self.add(spec)

    # Questions

    def __contains__(self, model: object) -> bool:
        return model in self._models

    def __len__(self) -> int:
        return len(self._models)

    def spec(self, model: str) -> ModelSpec:
        """What the model costs; KeyError for one that does not exist."""
        return self._models[model].spec

    def residency(self, model: str) -> Residency:
        """``COLD``, ``LOADING`` or ``HOT``."""
        return self._models[model].residency

    def is_cold(self, model: str) -> bool:
        """Neither hot nor loading."""
        return self._models[model].residency is Residency.COLD

    @property
    def used_bytes(self) -> int:
        """Memory that hot and loading models hold."""
        return self._used_bytes

    @property
    def others_bytes(self) -> int:
        """Memory that something else holds: another program, or a stopped model's leak."""
        return self._others_bytes

    @property
    def free_bytes(self) -> int | None:
        """Memory left, never below 0; None where there is no limit."""
        if self.capacity_bytes is None:
            return None
        return max(0, self.capacity_bytes - self._used_bytes - self._others_bytes)

    def fits(self, model: str) -> bool:
        """Whether a load of this model would find its memory now."""
        free_bytes = self.free_bytes
        return free_bytes is None or self._models[model].spec.footprint_bytes <= free_bytes

    @property
    def load_slot_free(self) -> bool:
        """Whether one more load may run."""
        return self.load_slots is None or len(self._loading) < self.load_slots

    def loading(self) -> tuple[str, ...]:
        """Models that load, in the order in which their loads began."""
        return tuple(self._loading)

    def resident(self) -> tuple[str, ...]:
        """Models that are hot, in the order in which they became so."""
        return tuple(self._resident)

    def in_flight(self, model: str) -> int:
        """Requests that hold a slot of this model."""
        return len(self._models[model].in_flight)

    def waiting(self, model: str) -> int:
        """Requests that wait for a slot, or for the model to be hot."""
        return len(self._models[model].waiting)

    def requests(self, model: str) -> tuple[RequestT, ...]:
        """Those in flight, then those that wait, each in its order."""
        state = self._models[model]
        return (*state.in_flight, *state.waiting)

    def last_used_s(self, model: str) -> float | None:
        """The last arrival, end of load or end of a request; None: never."""
        return self._models[model].last_used_s

    def is_idle(self, model: str) -> bool:
        """Hot, with nothing in flight and nothing waiting."""
        state = self._models[model]
        return state.residency is Residency.HOT and not state.in_flight and not state.waiting

    def idle(self) -> tuple[str, ...]:
        """Idle models, the least recently used first."""
        models = [model for model in self._resident if self.is_idle(model)]
        return tuple(sorted(models, key=self._recency))

    # Changes

    def add(self, spec: ModelSpec) -> None:
        """A new model, or a new cost of one that is cold."""
        known = self._models.get(spec.name)
        if known is not None and known.residency is not Residency.COLD:
            raise ValueError(f"model {spec.name!r} is {known.residency}, not cold")
        if known is None:
            self._models[spec.name] = _Model(spec)
        else:
            known.spec = spec

    def remove(self, model: str) -> None:
        """Forget a cold model that nobody waits for."""
        state = self._expect(model, Residency.COLD)
        if state.waiting:
            raise ValueError(f"model {model!r}: requests wait for it")
        del self._models[model]

    def set_others_bytes(self, others_bytes: int) -> None:
        """Something else holds this much memory now."""
        if others_bytes < 0:
            raise ValueError("others_bytes must not be negative")
        self._others_bytes = others_bytes

    def begin_load(self, model: str) -> None:
        """The model holds its memory from here on. Its caller says when the load ends."""
        state = self._expect(model, Residency.COLD)
        if not self.fits(model):
            raise ValueError(f"model {model!r} does not fit: {self.free_bytes} bytes are free")
        if not self.load_slot_free:
            raise ValueError(f"model {model!r}: {self.load_slots} loads run already")
        state.residency = Residency.LOADING
        self._loading[model] = None
        self._used_bytes += state.spec.footprint_bytes

    def end_load(self, model: str, now_s: float) -> None:
        """The model is hot."""
        state = self._expect(model, Residency.LOADING)
        del self._loading[model]
        state.residency = Residency.HOT
        self._resident[model] = None
        state.last_used_s = now_s

    def abort_load(self, model: str) -> None:
        """The load ended without a hot model; its memory is free again."""
        state = self._expect(model, Residency.LOADING)
        del self._loading[model]
        state.residency = Residency.COLD
        self._used_bytes -= state.spec.footprint_bytes

    def unload(self, model: str) -> None:
        """An idle model leaves memory."""
        if not self.is_idle(model):
            raise ValueError(f"model {model!r} is not idle")
        self._drop(model)

    def kill(self, model: str) -> tuple[RequestT, ...]:
        """A hot model's process dies: it is cold, and its requests (returned) are broken off."""
        state = self._expect(model, Residency.HOT)
        broken = self.requests(model)
        state.in_flight.clear()
        state.waiting.clear()
        self._drop(model)
        return broken

    def arrive(self, model: str, request: RequestT, now_s: float) -> None:
        """A request joins the model's queue, whatever the model's residency."""
        state = self._models[model]
        state.waiting.append(request)
        state.last_used_s = now_s

    def start_ready(self, model: str) -> tuple[RequestT, ...]:
        """Move waiting requests into free slots of a hot model; those that start."""
        state = self._models[model]
        if state.residency is not Residency.HOT:
            return ()
        started: list[RequestT] = []
        while state.waiting and len(state.in_flight) < state.spec.parallel:
            request = state.waiting.popleft()
            state.in_flight[request] = None
            started.append(request)
        return tuple(started)

    def end_request(self, model: str, request: RequestT, now_s: float) -> None:
        """A request in flight ends and frees its slot."""
        state = self._models[model]
        del state.in_flight[request]
        state.last_used_s = now_s

    def withdraw(self, model: str, request: RequestT) -> None:
        """A request that waits leaves the queue; ValueError when it does not wait."""
        self._models[model].waiting.remove(request)

    # Inside

    def _drop(self, model: str) -> None:
        state = self._models[model]
        state.residency = Residency.COLD
        del self._resident[model]
        self._used_bytes -= state.spec.footprint_bytes

    def _expect(self, model: str, residency: Residency) -> _Model[RequestT]:
        state = self._models[model]
        if state.residency is not residency:
            raise ValueError(f"model {model!r} is {state.residency}, not {residency}")
        return state

    def _recency(self, model: str) -> float:
        # A hot model has at least the end of its load.
        return self._models[model].last_used_s or 0.0


class _Model(Generic[RequestT]):
    __slots__ = ("in_flight", "last_used_s", "residency", "spec", "waiting")

    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec
        self.residency = Residency.COLD
        self.in_flight: dict[RequestT, None] = {}
        self.waiting: deque[RequestT] = deque()
        self.last_used_s: float | None = None
