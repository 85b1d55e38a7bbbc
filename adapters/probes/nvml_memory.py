"""Memory of one NVIDIA card: in the driver's newer form, its older one, or the host's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from adapters.probes.host_memory import HostMemory

UNIFIED_NAMES = ("GB10", "ORIN", "THOR", "XAVIER", "TEGRA")
"""Cards that share the host's memory, whatever their driver tells of it."""

WRONG_SHARE = 8
"""A card that shares the host's memory tells of it if that is more than this part of it."""

Ask = Callable[[str, Callable[[], Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class CardMemory:
    """As in ``GpuReading``."""

    total_bytes: int | None = None
    used_bytes: int | None = None
    free_bytes: int | None = None
    reserved_bytes: int | None = None
    is_unified: bool = False


def memory_of(
    nvml: Any,
    handle: Any,
    *,
    name: str,
    is_instance: bool,
    ask: Ask,
    host_memory: Callable[[], HostMemory | None],
) -> CardMemory:
    """What one card has; all None where it does not tell, which is not to have none."""
    told, unsupported = _told(nvml, handle, ask)
    shares = any(word in name.upper() for word in UNIFIED_NAMES)
    if is_instance or not (shares or unsupported):
        return told
    host = host_memory()
    if host is None:
        return told
    if told.total_bytes is not None and told.total_bytes * WRONG_SHARE > host.total_bytes:
        return told
    return CardMemory(
        total_bytes=host.total_bytes,
        used_bytes=host.used_bytes,
        free_bytes=host.available_bytes,
        is_unified=True,
    )


def _told(nvml: Any, handle: Any, ask: Ask) -> tuple[CardMemory, bool]:
    """What the driver tells, and whether it says that there is nothing to tell."""
    version = getattr(nvml, "nvmlMemory_v2", None)
    unsupported: list[bool] = []

    def read(wanted: Any) -> Any:
        try:
            if wanted is None:
                return nvml.nvmlDeviceGetMemoryInfo(handle)
            return nvml.nvmlDeviceGetMemoryInfo(handle, version=wanted)
        except nvml.NVMLError_NotSupported:
            unsupported.append(True)
            raise

    info = None if version is None else ask("memory_v2", lambda: read(version))
    if info is not None:
        free = _within(info.free, info.total)
        return CardMemory(
            total_bytes=info.total or None,
            used_bytes=_within(info.used, info.total),
            free_bytes=free,
            reserved_bytes=_within(info.reserved, info.total),
        ), False
    info = ask("memory", lambda: read(None))
    if info is None:
        return CardMemory(), bool(unsupported)
    return CardMemory(
        total_bytes=info.total or None,
        used_bytes=_within(info.used, info.total),
        free_bytes=_within(info.free, info.total),
    ), False


def _within(value: int, total: int) -> int | None:
    """A part of the whole; what is more than that is a driver's word for "not known"."""
    return int(value) if 0 <= value <= total else None
