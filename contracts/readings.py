"""What probes read of a machine: its GPUs, one by one, and its host. None: not told, never zero."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuProcess:
    """A process that holds memory of a GPU, by its id in the machine's own process table.

    In a container that is another table than ours: nothing is ever ended by this number.
    """

    pid: int
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuReading:
    """One card, or one MIG instance of a card.

    Attributes
    ----------
    uuid : str
        Which one it is, over restarts and whatever the order that a library counts them in.
    accelerator : str
        ``cuda``, ``rocm`` or ``intel``, or what a plug-in calls its kind.
    parent_uuid : str or None
        The card that a MIG instance is a part of.
    is_unified : bool
        It has no memory of its own (or little): what is told here is the host's memory.
    memory_used_bytes, memory_reserved_bytes : int or None
        In use, and held by the driver itself. An old driver does not tell the latter and counts
        it as used, so budgets rest on ``memory_free_bytes``.
    used_by_others_bytes : int or None
        What is neither free nor LocalAI's, the driver's own included. None: it is not told which
        process holds what, or whose the processes are.
    processes : tuple of GpuProcess or None
        Who holds its memory, the largest first, bounded.
    """

    uuid: str
    name: str = ""
    accelerator: str = "cuda"
    parent_uuid: str | None = None
    is_unified: bool = False
    memory_total_bytes: int | None = None
    memory_used_bytes: int | None = None
    memory_free_bytes: int | None = None
    memory_reserved_bytes: int | None = None
    used_by_others_bytes: int | None = None
    utilization_ratio: float | None = None
    temperature_celsius: float | None = None
    power_watts: float | None = None
    processes: tuple[GpuProcess, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeReading:
    """What the host and its GPUs say of themselves.

    ``gpu_*`` are over all cards: the busiest one's utilisation, the hottest one's temperature,
    the sums of memory. Host memory is that of the control group where one bounds it. A
    ``*_pressure_*`` is the share of the last ten seconds in which some (all) tasks had to wait.
    """

    at_s: float
    gpu_utilization_ratio: float | None = None
    gpu_memory_used_bytes: int | None = None
    gpu_memory_total_bytes: int | None = None
    gpu_temperature_celsius: float | None = None
    cpu_utilization_ratio: float | None = None
    load_average_15min: float | None = None
    host_memory_used_bytes: int | None = None
    host_memory_total_bytes: int | None = None
    gpus: tuple[GpuReading, ...] = ()
    host_memory_available_bytes: int | None = None
    cpus: float | None = None
    load_average_1min: float | None = None
    load_average_5min: float | None = None
    context_switches_per_s: float | None = None
    cpu_pressure_some_ratio: float | None = None
    cpu_pressure_full_ratio: float | None = None
    memory_pressure_some_ratio: float | None = None
    memory_pressure_full_ratio: float | None = None
    io_pressure_some_ratio: float | None = None
    io_pressure_full_ratio: float | None = None


def over_all(reading: ProbeReading) -> ProbeReading:
    """The reading with the figures over all of its cards; what no card tells stays None."""
    gpus = reading.gpus
    held = [(_held_bytes(gpu), gpu.memory_total_bytes) for gpu in gpus]
    return replace(
        reading,
        gpu_utilization_ratio=_most(gpu.utilization_ratio for gpu in gpus),
        gpu_temperature_celsius=_most(gpu.temperature_celsius for gpu in gpus),
        gpu_memory_total_bytes=_sum(total for _, total in held if total is not None),
        gpu_memory_used_bytes=_sum(used for used, total in held if used is not None and total),
    )


def _held_bytes(gpu: GpuReading) -> int | None:
    """What is not free: the driver's own counts, whether or not the driver says so."""
    if gpu.memory_total_bytes is not None and gpu.memory_free_bytes is not None:
        return max(0, gpu.memory_total_bytes - gpu.memory_free_bytes)
    return gpu.memory_used_bytes


def _most(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def _sum(values: Iterable[int]) -> int | None:
    told = tuple(values)
    return sum(told) if told else None
