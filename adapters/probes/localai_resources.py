"""What a LocalAI tells of the machine it is on (``/api/resources``), as a reading. Pure.

It tells memory alone, and no UUIDs: cards are told apart by the numbers that it gives them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from contracts.readings import GpuReading, ProbeReading, over_all

ACCELERATORS = {"nvidia": "cuda", "amd": "rocm", "intel": "intel", "vulkan": "vulkan"}
MAX_GPUS = 64


def reading_of(answer: Mapping[str, Any], at_s: float) -> ProbeReading:
    """The reading; empty where this LocalAI does not tell (its UI is off)."""
    listed = answer.get("gpus")
    gpus = tuple(
        gpu
        for entry in (listed if isinstance(listed, list) else [])[:MAX_GPUS]
        if isinstance(entry, dict) and (gpu := _gpu(entry)) is not None
    )
    ram = answer.get("ram")
    total = available = None
    if isinstance(ram, dict):
        total = _positive(ram.get("total"))
        available = _within(_first(ram.get("available"), ram.get("free")), total)
    reading = ProbeReading(
        at_s=at_s,
        gpus=gpus,
        host_memory_total_bytes=total,
        host_memory_available_bytes=available,
        host_memory_used_bytes=None if total is None or available is None else total - available,
    )
    return over_all(reading) if gpus else reading


def _gpu(entry: Mapping[str, Any]) -> GpuReading | None:
    number, vendor = entry.get("index"), str(entry.get("vendor") or "unknown")
    total = _positive(entry.get("total_vram"))  # 0 is how it says that it does not know
    used = _within(_count(entry.get("used_vram")), total)
    free = _within(_count(entry.get("free_vram")), total)
    if not isinstance(number, int) or isinstance(number, bool):
        return None
    return GpuReading(
        uuid=f"localai:{vendor}:{number}",
        name=str(entry.get("name") or ""),
        accelerator=ACCELERATORS.get(vendor, vendor),
        memory_total_bytes=total,
        memory_used_bytes=used,
        memory_free_bytes=free,
    )


def _first(*values: object) -> int | None:
    return next((count for value in values if (count := _count(value)) is not None), None)


def _count(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        return None
    return int(value)


def _positive(value: object) -> int | None:
    return _count(value) or None


def _within(value: int | None, total: int | None) -> int | None:
    return None if value is None or total is None or value > total else value
