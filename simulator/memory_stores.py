# ruff: noqa: D102 - the port says what each method does
"""In-memory stores: forecasts, what people set, snapshots, the lease, jobs and the probe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from contracts.errors import NotLeader
from contracts.events import PriorityClass
from contracts.forecasts import Forecasts, ModelForecast
from contracts.ids import ModelId
from contracts.limits import ClassLimits
from contracts.ports import Clock, ProbeReading
from contracts.routing import RoutingTable
from contracts.world import GpuYield, Mode, Sla, WorldSnapshot
from simulator.memory_streams import MAX_BATCH, Faulty, Stream


class Fence:
    """Refuses tokens that are smaller than the greatest it has seen."""

    def __init__(self) -> None:
        self._seen = 0

    def check(self, token: int | None) -> None:
        """Raise NotLeader for a token that is behind; None: the writer has no rival."""
        if token is None:
            return
        if token < self._seen:
            raise NotLeader("another has written with a greater token")
        self._seen = token


class MemoryForecastStore(Faulty):
    """``ForecastStore`` in memory."""

    def __init__(self, *, clock: Clock | None = None, max_updates: int = 1000) -> None:
        self._newest: dict[ModelId, ModelForecast] = {}
        self._updates: Stream[tuple[ModelId, ...]] = Stream(max_entries=max_updates, clock=clock)
        self._fence = Fence()

    async def put(self, forecasts: tuple[ModelForecast, ...], *, token: int | None = None) -> None:
        self._check()
        self._fence.check(token)
        if forecasts:
            self._newest.update((forecast.model, forecast) for forecast in forecasts)
            self._updates.add(tuple(forecast.model for forecast in forecasts))

    async def get_all(self) -> Forecasts:
        self._check()
        return dict(self._newest)

    async def get(self, model: ModelId) -> ModelForecast | None:
        self._check()
        return self._newest.get(model)

    async def updates(self, after: str, *, block_s: float) -> tuple[str, tuple[ModelForecast, ...]]:
        self._check()
        place = self._updates.place(after)
        found = await self._updates.wait_for(lambda: self._updates.after(place, MAX_BATCH), block_s)
        last = found[-1][0] if found else place
        names = dict.fromkeys(name for _, batch in found for name in batch)
        return f"{last}-0" if last else "0", tuple(
            self._newest[name] for name in names if name in self._newest
        )

    async def remove(self, models: tuple[ModelId, ...], *, token: int | None = None) -> None:
        self._check()
        self._fence.check(token)
        for model in models:
            self._newest.pop(model, None)


class MemoryControlStore(Faulty):
    """``ControlStore`` in memory."""

    def __init__(self) -> None:
        self._slas: dict[ModelId, Sla] = {}
        self._pins: set[ModelId] = set()
        self._mode: Mode | None = None
        self._gpu_yield: GpuYield | None = None

    async def slas(self) -> Mapping[ModelId, Sla]:
        self._check()
        return dict(self._slas)

    async def put_sla(self, sla: Sla) -> None:
        self._check()
        self._slas[sla.model] = sla

    async def delete_sla(self, model: ModelId) -> bool:
        self._check()
        return self._slas.pop(model, None) is not None

    async def pins(self) -> frozenset[ModelId]:
        self._check()
        return frozenset(self._pins)

    async def set_pin(self, model: ModelId, *, pinned: bool) -> None:
        self._check()
        if pinned:
            self._pins.add(model)
        else:
            self._pins.discard(model)

    async def mode(self) -> Mode | None:
        self._check()
        return self._mode

    async def set_mode(self, mode: Mode) -> None:
        self._check()
        self._mode = mode

    async def gpu_yield(self) -> GpuYield | None:
        self._check()
        return self._gpu_yield

    async def set_gpu_yield(self, wish: GpuYield | None) -> None:
        self._check()
        self._gpu_yield = wish


class MemorySnapshotStore(Faulty):
    """``SnapshotStore`` in memory."""

    def __init__(self) -> None:
        self._world: WorldSnapshot | None = None
        self._routing: RoutingTable | None = None
        self._baselines: dict[str, dict[str, float]] = {}
        self._limits: dict[PriorityClass, ClassLimits] = {}

    async def put_world(self, world: WorldSnapshot) -> None:
        self._check()
        self._world = world

    async def world(self) -> WorldSnapshot | None:
        self._check()
        return self._world

    async def put_routing(self, table: RoutingTable) -> None:
        self._check()
        if self._routing is not None and table.token < self._routing.token:
            raise NotLeader(f"a routing table with token {self._routing.token} is already stored")
        self._routing = table

    async def routing(self) -> RoutingTable | None:
        self._check()
        return self._routing

    async def put_baseline(self, name: str, figures: Mapping[str, float]) -> None:
        self._check()
        self._baselines[name] = dict(figures)

    async def baselines(self) -> Mapping[str, Mapping[str, float]]:
        self._check()
        return {name: dict(figures) for name, figures in self._baselines.items()}

    async def put_limits(self, limits: ClassLimits) -> None:
        self._check()
        self._limits[limits.priority] = limits

    async def limits(self, priority: PriorityClass) -> ClassLimits | None:
        self._check()
        return self._limits.get(priority)


class MemoryLease(Faulty):
    """``Lease`` in memory."""

    def __init__(self) -> None:
        self._owner: str | None = None
        self._token = 0
        self._expires_at_s = 0.0

    async def acquire(self, owner: str, *, now_s: float, lease_s: float) -> int | None:
        self._check()
        if self._owner is not None and self._expires_at_s > now_s and self._owner != owner:
            return None
        if self._owner != owner:
            # Milliseconds of the clock, so that tokens also grow past a store that lost its data.
            self._token = max(self._token + 1, int(now_s * 1000))
        self._owner, self._expires_at_s = owner, now_s + lease_s
        return self._token

    async def release(self, owner: str) -> None:
        self._check()
        if self._owner == owner:
            self._owner = None


class MemoryProbe:
    """``Probe`` that gives scripted readings in turn, and the last one again and again."""

    def __init__(self, readings: Iterable[ProbeReading] = ()) -> None:
        self._readings = list(readings)

    def read(self, now_s: float) -> ProbeReading:
        """The next scripted reading; without any, one that tells nothing."""
        if not self._readings:
            return ProbeReading(at_s=now_s)
        return self._readings.pop(0) if len(self._readings) > 1 else self._readings[0]
