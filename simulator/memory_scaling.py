"""Scaling in memory: the newest answers, and a scaler whose replicas come when a test says so."""
# ruff: noqa: D102 - the port says what each method does

from __future__ import annotations

from collections.abc import Mapping

from contracts.errors import Transient
from contracts.scaling import Replicas, Scaling
from simulator.memory_streams import Faulty


class MemoryScalingStore(Faulty):
    """``ScalingStore`` in memory."""

    def __init__(self) -> None:
        self._scalings: dict[str, Scaling] = {}

    async def put_scaling(self, scaling: Scaling) -> None:
        self._check()
        self._scalings[scaling.target] = scaling

    async def scalings(self) -> Mapping[str, Scaling]:
        self._check()
        return dict(self._scalings)


class MemoryScaler:
    """``Scaler`` in memory: ``orders`` as they came; ``dead`` takes none."""

    def __init__(self, ready: Mapping[str, int] | None = None) -> None:
        self.ready = dict(ready or {})
        self.wanted: dict[str, int] = {}
        self.orders: list[tuple[str, int]] = []
        self.dead = False

    async def replicas(self, place: str) -> Replicas:
        ready = self.ready.get(place, 0)
        return Replicas(ready=ready, wanted=self.wanted.get(place, ready))

    async def scale(self, place: str, replicas: int) -> None:
        if self.dead:
            raise Transient("the scaler is away")
        self.orders.append((place, replicas))
        self.wanted[place] = replicas
