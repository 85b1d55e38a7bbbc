"""Pressure stall information: how much of the time work had to wait for cpu, memory or disk."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adapters.probes.files import text_of


@dataclass(frozen=True, slots=True)
class Pressure:
    """Share of the last ten seconds in which some, and all, tasks waited. None: not told."""

    some_ratio: float | None = None
    full_ratio: float | None = None


def pressure_of(resource: str, proc: Path = Path("/proc")) -> Pressure:
    """Of ``cpu``, ``memory`` or ``io``; empty where the kernel does not tell."""
    found: dict[str, float] = {}
    for line in (text_of(proc / "pressure" / resource) or "").splitlines():
        kind, _, rest = line.partition(" ")
        for field in rest.split():
            name, _, value = field.partition("=")
            if name == "avg10":
                try:
                    found[kind] = min(1.0, max(0.0, float(value) / 100.0))
                except ValueError:
                    continue
    return Pressure(found.get("some"), found.get("full"))
