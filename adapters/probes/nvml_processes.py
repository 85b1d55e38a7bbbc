"""Who holds memory of one NVIDIA card."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from adapters.probes.owners import Owners
from contracts.readings import GpuProcess

MAX_PROCESSES = 32

NOT_KNOWN = 2**63
"""Sizes from here on are none, where not even the card's own is known."""

Ask = Callable[[str, Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True)
class CardProcesses:
    """Bytes by process id; None where it is not told (WDDM, WSL2)."""

    bytes_by_pid: dict[int, int | None]

    def held(self, owners: Owners | None) -> int | None:
        """What LocalAI's processes hold. None: not told, or whose they are is not."""
        if owners is None:
            return None
        owned = owners.owned(self.bytes_by_pid)
        if owned is None:
            return None
        sizes = [self.bytes_by_pid[pid] for pid in owned]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def largest(self) -> tuple[GpuProcess, ...]:
        """The largest first, those of unknown size last."""
        listed = [GpuProcess(pid=pid, memory_bytes=size) for pid, size in self.bytes_by_pid.items()]
        listed.sort(key=lambda each: (-(each.memory_bytes or 0), each.pid))
        return tuple(listed[:MAX_PROCESSES])


def processes_of(
    nvml: Any, handle: Any, ask: Ask, *, total_bytes: int | None
) -> CardProcesses | None:
    """Those that compute and those that draw; None where neither list is told.

    A size that is more than the card has is a driver's word for "not known".
    """
    most = NOT_KNOWN if total_bytes is None else total_bytes
    found: dict[int, int | None] = {}
    told = False
    for kind in ("Compute", "Graphics"):
        listed = ask(f"{kind.lower()}_processes", partial(_listed, nvml, handle, kind))
        told = told or listed is not None
        for process in listed or ():
            size = process.usedGpuMemory
            # One that does both stands in both lists, with the same size.
            found[int(process.pid)] = None if size is None or size > most else int(size)
    return CardProcesses(found) if told else None


def _listed(nvml: Any, handle: Any, kind: str) -> Any:
    """By the newest of the calls that this driver and this binding both have."""
    name = f"nvmlDeviceGet{kind}RunningProcesses"
    if not hasattr(nvml, f"{name}_v3"):
        return getattr(nvml, name)(handle)
    try:
        return getattr(nvml, f"{name}_v3")(handle)
    except nvml.NVMLError_FunctionNotFound:
        return getattr(nvml, f"{name}_v2")(handle)
