"""The host by psutil, within what a control group leaves of it, and its pressure."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypedDict

import psutil

from adapters.probes.cgroups import GroupLimits, limits_of
from adapters.probes.faults import Faults
from adapters.probes.metrics import Metrics, Pace
from adapters.probes.pressure import pressure_of
from contracts.readings import ProbeReading


class _Memory(TypedDict, total=False):
    host_memory_total_bytes: int
    host_memory_used_bytes: int
    host_memory_available_bytes: int


class _Cpu(TypedDict, total=False):
    cpus: float
    cpu_utilization_ratio: float


class _Slow(TypedDict, total=False):
    context_switches_per_s: float
    load_average_1min: float
    load_average_5min: float
    load_average_15min: float


class _Pressures(TypedDict, total=False):
    cpu_pressure_some_ratio: float | None
    cpu_pressure_full_ratio: float | None
    memory_pressure_some_ratio: float | None
    memory_pressure_full_ratio: float | None
    io_pressure_some_ratio: float | None
    io_pressure_full_ratio: float | None


class HostProbe:
    """Processors, memory, load and pressure.

    Parameters
    ----------
    metrics : Metrics
        ``cpu`` says what is read beside memory.
    bounded_pid : callable
        Whose control group bounds what is told; None: this process's own.
    bounded : bool
        Whether our own does. Not where LocalAI is in another container than we: it says nothing
        about that one.
    proc, cgroup : Path
        Where the kernel tells of processes and pressure, and of control groups.
    real_s : callable
        Real seconds, which processor time is measured against however fast our clock runs.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        bounded_pid: Callable[[], int | None] = lambda: None,
        bounded: bool = True,
        proc: Path = Path("/proc"),
        cgroup: Path = Path("/sys/fs/cgroup"),
        real_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._metrics = metrics
        self._bounded_pid = bounded_pid
        self._bounded = bounded
        self._proc = proc
        self._cgroup = cgroup
        self._real_s = real_s
        self._faults = Faults("host")
        self._pace = Pace(metrics.slow_s)
        self._slow: _Slow = {}
        self._busy: tuple[float, float] | None = None
        self._used: tuple[float, float] | None = None
        self._switches: tuple[float, float] | None = None

    def read(self, now_s: float) -> ProbeReading:
        """What the host says now; a rate needs two looks."""
        limits = GroupLimits()
        pid = self._bounded_pid()
        if self._bounded or pid is not None:
            limits = limits_of(pid, proc=self._proc, root=self._cgroup)
        if self._pace.due(now_s):
            self._slow = self._read_slowly()
        return ProbeReading(
            at_s=now_s,
            **self._memory(limits),
            **self._slow,
            **self._cpu(limits),
            **self._pressures(),
        )

    def _memory(self, limits: GroupLimits) -> _Memory:
        try:
            machine = psutil.virtual_memory()
        except (OSError, RuntimeError, KeyError) as error:
            self._faults.begin("memory", str(error))
            return {}
        self._faults.end("memory")
        total, available = int(machine.total), int(machine.available)
        limit = limits.memory_limit_bytes
        if limit is not None and limit < total:
            left = limit if limits.memory_used_bytes is None else limit - limits.memory_used_bytes
            total, available = limit, max(0, min(available, left))
        return {
            "host_memory_total_bytes": total,
            "host_memory_used_bytes": max(0, total - available),
            "host_memory_available_bytes": available,
        }

    def _cpu(self, limits: GroupLimits) -> _Cpu:
        told: _Cpu = {}
        cpus = psutil.cpu_count() or None
        if cpus is not None:
            told["cpus"] = float(cpus) if limits.cpus is None else min(float(cpus), limits.cpus)
        if "utilization" not in self._metrics.cpu:
            return told
        if limits.cpus is not None and limits.cpu_used_s is not None:
            before, self._used = self._used, (self._real_s(), limits.cpu_used_s)
            ratio = _rate(before, self._used)
            ratio = None if ratio is None else ratio / limits.cpus
        else:
            ratio = self._machine_utilization()
        if ratio is not None:
            told["cpu_utilization_ratio"] = min(1.0, max(0.0, ratio))
        return told

    def _machine_utilization(self) -> float | None:
        try:
            times = psutil.cpu_times()
        except (OSError, RuntimeError) as error:
            self._faults.begin("utilization", str(error))
            return None
        self._faults.end("utilization")
        # A guest's time is counted as its user's already; steal is not ours to use.
        total = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)
        idle = times.idle + getattr(times, "iowait", 0.0)
        before, self._busy = self._busy, (total, total - idle)
        return _rate(before, self._busy)

    def _read_slowly(self) -> _Slow:
        told: _Slow = {}
        if "load_average" in self._metrics.cpu:
            one, five, fifteen = psutil.getloadavg()
            told = {
                "load_average_1min": one,
                "load_average_5min": five,
                "load_average_15min": fifteen,
            }
        if "context_switches" in self._metrics.cpu:
            try:
                switches = float(psutil.cpu_stats().ctx_switches)
            except (OSError, RuntimeError) as error:
                self._faults.begin("context_switches", str(error))
                return told
            self._faults.end("context_switches")
            before, self._switches = self._switches, (self._real_s(), switches)
            rate = _rate(before, self._switches)
            if rate is not None:
                told["context_switches_per_s"] = rate
        return told

    def _pressures(self) -> _Pressures:
        if "pressure" not in self._metrics.cpu:
            return {}
        cpu, memory, io = (pressure_of(name, self._proc) for name in ("cpu", "memory", "io"))
        return {
            "cpu_pressure_some_ratio": cpu.some_ratio,
            "cpu_pressure_full_ratio": cpu.full_ratio,
            "memory_pressure_some_ratio": memory.some_ratio,
            "memory_pressure_full_ratio": memory.full_ratio,
            "io_pressure_some_ratio": io.some_ratio,
            "io_pressure_full_ratio": io.full_ratio,
        }


def _rate(before: tuple[float, float] | None, now: tuple[float, float]) -> float | None:
    """How much the second grew for each unit of the first; None without two looks."""
    if before is None or now[0] <= before[0] or now[1] < before[1]:
        return None
    return (now[1] - before[1]) / (now[0] - before[0])
