"""Host memory: the machine's, and what a control group leaves of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from adapters.probes.files import text_of, whole_of

_KIB = 1024


@dataclass(frozen=True, slots=True)
class HostMemory:
    """``available_bytes``: what new work may take without pushing other work out."""

    total_bytes: int
    available_bytes: int

    @property
    def used_bytes(self) -> int:
        """The rest."""
        return max(0, self.total_bytes - self.available_bytes)


def machine_memory(proc: Path = Path("/proc")) -> HostMemory | None:
    """The whole machine's, by ``meminfo``; None where there is none."""
    sizes: dict[str, int] = {}
    for line in (text_of(proc / "meminfo") or "").splitlines():
        name, _, rest = line.partition(":")
        fields = rest.split()
        if fields and (size := whole_of(fields[0])) is not None:
            sizes[name] = size * _KIB
    total, available = sizes.get("MemTotal"), sizes.get("MemAvailable")
    if available is None and "MemFree" in sizes:  # kernels before 3.14
        available = sizes["MemFree"] + sizes.get("Buffers", 0) + sizes.get("Cached", 0)
    if total is None or available is None:
        return None
    return HostMemory(total, min(total, available))
