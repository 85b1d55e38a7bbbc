"""Intel's cards, where the i915 or xe driver tells of their memory in sysfs.

Many versions of both do not; those cards are left to LocalAI's own figures.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from adapters.probes.drm import DrmCard, cards_of, temperature_celsius
from adapters.probes.files import number_of, text_of
from adapters.probes.metrics import Metrics, Pace
from contracts.readings import GpuReading, ProbeReading

VENDOR = "0x8086"

_IDLE_FILES = ("gt/gt*/rc6_residency_ms", "device/tile*/gt*/gtidle/idle_residency_ms")


class IntelProbe:
    """Reads Intel's cards.

    Parameters
    ----------
    metrics : Metrics
        ``gpu`` says what is read beside memory.
    sys : Path
        Where sysfs is.
    real_s : callable
        Real seconds, which idle time and energy are measured against.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        sys: Path = Path("/sys"),
        real_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._sys = sys
        self._real_s = real_s
        self._pace = Pace(metrics.slow_s)
        self._temperatures: dict[str, float | None] = {}
        self._idle: dict[Path, tuple[float, float]] = {}
        self._energy: dict[Path, tuple[float, float]] = {}
        self._watts: dict[str, float | None] = {}

    def read(self, now_s: float) -> ProbeReading:
        """Every card that tells of memory."""
        slowly = self._pace.due(now_s)
        cards = [card for card in cards_of(self._sys, VENDOR) if _total_bytes(card) is not None]
        if slowly:
            self._read_slowly(cards)
        return ProbeReading(at_s=now_s, gpus=tuple(self._look(card) for card in cards))

    def _look(self, card: DrmCard) -> GpuReading:
        total = _total_bytes(card)
        free = number_of(card.folder / "lmem_avail_bytes")
        if total is None or free is None or free > total:
            free = None
        return GpuReading(
            uuid=card.address,
            name=f"Intel {text_of(card.device / 'device') or 'GPU'}",
            accelerator="intel",
            memory_total_bytes=total,
            memory_used_bytes=None if total is None or free is None else total - free,
            memory_free_bytes=free,
            utilization_ratio=self._utilization(card),
            temperature_celsius=self._temperatures.get(card.address),
            power_watts=self._watts.get(card.address),
        )

    def _utilization(self, card: DrmCard) -> float | None:
        """Share of the time in which the busiest part was not asleep; needs two looks."""
        if "utilization" not in self._metrics.gpu:
            return None
        busy: list[float] = []
        for pattern in _IDLE_FILES:
            for path in sorted(card.folder.glob(pattern)):
                idle_ms = number_of(path)
                if idle_ms is not None:
                    now = (self._real_s(), idle_ms / 1000.0)
                    rate = _rate(self._idle.get(path), now)
                    self._idle[path] = now
                    if rate is not None:
                        busy.append(min(1.0, max(0.0, 1.0 - rate)))
        return max(busy, default=None)

    def _read_slowly(self, cards: list[DrmCard]) -> None:
        if "temperature" in self._metrics.gpu:
            self._temperatures = {card.address: temperature_celsius(card) for card in cards}
        if "power" in self._metrics.gpu:
            self._watts = {card.address: self._power(card) for card in cards}

    def _power(self, card: DrmCard) -> float | None:
        for folder in card.sensors():
            path = folder / "energy1_input"
            microjoules = number_of(path)
            if microjoules is not None:
                now = (self._real_s(), microjoules / 1e6)
                rate = _rate(self._energy.get(path), now)
                self._energy[path] = now
                return rate
        return None


def _total_bytes(card: DrmCard) -> int | None:
    total = number_of(card.folder / "lmem_total_bytes")
    if total:
        return total
    tiles = [number_of(path) for path in card.device.glob("tile*/physical_vram_size_bytes")]
    known = sum(size for size in tiles if size is not None)
    return known or None


def _rate(before: tuple[float, float] | None, now: tuple[float, float]) -> float | None:
    if before is None or now[0] <= before[0] or now[1] < before[1]:
        return None
    return (now[1] - before[1]) / (now[0] - before[0])
