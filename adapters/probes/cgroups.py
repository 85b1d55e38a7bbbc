"""What a control group leaves of the machine, version 1 and 2: memory and processors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from adapters.probes.files import number_of, text_of, whole_of

MAX_DEPTH = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """The tightest bound of a group and all that it is in. None: not bounded, or not told.

    ``memory_used_bytes``: of the group whose limit that is, without files that may go.
    """

    memory_limit_bytes: int | None = None
    memory_used_bytes: int | None = None
    cpus: float | None = None
    cpu_used_s: float | None = None
    """Processor time so far, of the group whose limit ``cpus`` is."""


def limits_of(
    pid: int | None = None, *, proc: Path = Path("/proc"), root: Path = Path("/sys/fs/cgroup")
) -> GroupLimits:
    """What bounds a process; None: this one."""
    places = _places(text_of(proc / ("self" if pid is None else str(pid)) / "cgroup") or "")
    memory = _tightest_memory(places, root)
    cpu = _tightest_cpu(places, root)
    return GroupLimits(
        memory_limit_bytes=memory[0] if memory else None,
        memory_used_bytes=memory[1] if memory else None,
        cpus=cpu[0] if cpu else None,
        cpu_used_s=cpu[1] if cpu else None,
    )


def _places(text: str) -> dict[str, str]:
    """Path of the group by controller; "" is the one group of version 2."""
    places: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            places[controller] = path
    return places


def _folders(root: Path, controller: str, path: str | None) -> Iterator[Path]:
    """The group's folder and those that it is in. In a container its own may be the mount."""
    if path is None:
        return
    top = root / controller if controller else root
    parts = [part for part in path.split("/") if part not in ("", "..")][:MAX_DEPTH]
    for length in range(len(parts), -1, -1):
        folder = top.joinpath(*parts[:length])
        if _is_folder(folder):
            yield folder


def _is_folder(path: Path) -> bool:
    with suppress(OSError):  # such as a name that is longer than names may be
        return path.is_dir()
    return False


def _tightest_memory(places: dict[str, str], root: Path) -> tuple[int, int | None] | None:
    found: list[tuple[int, int | None]] = []
    for folder in _folders(root, "", places.get("")):
        limit = number_of(folder / "memory.max")
        if limit is not None:
            used = number_of(folder / "memory.current")
            found.append((limit, _without_files(used, folder, "inactive_file")))
    for folder in _folders(root, "memory", places.get("memory")):
        limit = number_of(folder / "memory.limit_in_bytes")
        if limit is not None:
            used = number_of(folder / "memory.usage_in_bytes")
            found.append((limit, _without_files(used, folder, "total_inactive_file")))
    return min(found, key=lambda each: each[0], default=None)


def _without_files(used: int | None, folder: Path, key: str) -> int | None:
    if used is None:
        return None
    for line in (text_of(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == key and (files := whole_of(value)) is not None:
            return max(0, used - files)
    return used


def _tightest_cpu(places: dict[str, str], root: Path) -> tuple[float, float | None] | None:
    found: list[tuple[float, float | None]] = []
    for folder in _folders(root, "", places.get("")):
        quota, _, period = (text_of(folder / "cpu.max") or "").partition(" ")
        told_us, period_us = whole_of(quota), whole_of(period)
        if told_us is not None and period_us:
            found.append((told_us / period_us, _used_s(folder)))
    for folder in _folders(root, "cpu", places.get("cpu")):
        quota_us = number_of(folder / "cpu.cfs_quota_us")  # -1: none
        period_us = number_of(folder / "cpu.cfs_period_us")
        if quota_us and period_us:
            used_ns = number_of(
                root / "cpuacct" / folder.relative_to(root / "cpu") / "cpuacct.usage"
            )
            found.append((quota_us / period_us, None if used_ns is None else used_ns / 1e9))
    return min(found, key=lambda each: each[0], default=None)


def _used_s(folder: Path) -> float | None:
    for line in (text_of(folder / "cpu.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name == "usage_usec" and (used_us := whole_of(value)) is not None:
            return used_us / 1e6
    return None
