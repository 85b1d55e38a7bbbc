"""Judgements on the machine: GPUs, memory, disks, clocks, ways between machines. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cli.checkup.findings import Finding, fail, ok, warn
from contracts.readings import ProbeReading

GIB = 1024**3
DISK_BYTES = 50 * GIB
"""Weights of a handful of models, and a month of events and batches."""

LEAST_DISK_BYTES = 5 * GIB
RESERVE_RATIO = 0.2
CLOCK_S = 2.0
"""Load answers and forecasts are dated; gateways older than three seconds count as gone."""

LATENCY_S = 0.010
SLOW_S = 0.100


@dataclass(frozen=True, slots=True, kw_only=True)
class Disk:
    """A file system. ``rotates`` is None where that cannot be told."""

    subject: str
    path: str
    free_bytes: int
    rotates: bool | None = None


def judge_disk(disk: Disk) -> Iterator[Finding]:
    """Room and kind."""
    what = f"{disk.free_bytes / GIB:.0f} GiB are free at {disk.path}"
    remedy = "make room, or move it to a larger disk"
    if disk.free_bytes < LEAST_DISK_BYTES:
        yield fail("disk.room", disk.subject, what, remedy)
    elif disk.free_bytes < DISK_BYTES:
        yield warn("disk.room", disk.subject, f"{what}, less than 50", remedy)
    else:
        yield ok("disk.room", disk.subject, what)
    if disk.rotates:
        yield warn(
            "disk.kind",
            disk.subject,
            f"{disk.path} is on a disk that rotates: loads take as long as it reads",
            "keep weights on an SSD",
        )
    elif disk.rotates is not None:
        yield ok("disk.kind", disk.subject, f"{disk.path} is on an SSD")


def judge_gpus(reading: ProbeReading) -> Iterator[Finding]:
    """Whether cards are seen, and whether each tells its memory."""
    if not reading.gpus:
        yield warn(
            "gpu.probe",
            "this machine",
            "no GPU is seen, so LocalAI's own figures are used, or models run on the CPU",
            "on a machine with GPUs: install the driver, and give the controller the devices",
        )
    for card in reading.gpus:
        subject = card.name or card.uuid
        if card.memory_total_bytes is None:
            yield warn(
                "gpu.memory",
                subject,
                "it does not tell its memory",
                "set memory.gpu_budget_mb to what models may fill",
            )
        else:
            total = card.memory_total_bytes / GIB
            yield ok("gpu.memory", subject, f"{total:.1f} GiB, seen by {card.accelerator}")


def judge_reserve(reserve_ratio: float) -> Finding:
    """Whether enough is left for what models take while they answer."""
    what = f"memory.reserve_ratio leaves {reserve_ratio:.0%} of memory free"
    if reserve_ratio < RESERVE_RATIO:
        return warn("memory.reserve", "models", what, "leave 20 %: answers need memory as well")
    return ok("memory.reserve", "models", what)


def judge_clock(subject: str, ahead_s: float, *, within_s: float = 0.0) -> Finding:
    """How far another machine's clock is ahead of ours; it is known ``within_s``."""
    off_s = max(0.0, abs(ahead_s) - within_s)
    direction = "ahead of" if ahead_s > 0 else "behind"
    if off_s > CLOCK_S:
        what = f"its clock is {abs(ahead_s):.1f} s {direction} this machine's"
        return fail("clock", subject, what, "run an NTP client on both machines")
    return ok("clock", subject, "its clock agrees with this machine's")


def judge_latency(subject: str, median_s: float) -> Finding:
    """How long a short call takes there and back."""
    what = f"a short call takes {1000 * median_s:.1f} ms"
    if median_s > SLOW_S:
        return fail("latency", subject, what, "put both into one network")
    if median_s > LATENCY_S:
        return warn("latency", subject, f"{what}, more than 10", "put both into one network")
    return ok("latency", subject, what)


def judge_port(service: str, port: int, *, is_taken: bool, is_ours: bool) -> Finding:
    """Whether a port is free, or taken by the service itself."""
    subject = f"{service}, port {port}"
    if is_ours:
        return ok("port", subject, f"{service} answers there")
    if is_taken:
        return fail(
            "port", subject, "something else listens there", f"stop it, or set {service}.port"
        )
    return ok("port", subject, f"it is free; {service} does not run")
