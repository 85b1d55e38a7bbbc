"""Which probes there are, ours and plugged in, and which of them are used."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

import structlog

from adapters.probes.amd import AmdProbe
from adapters.probes.combined import CombinedProbe
from adapters.probes.host import HostProbe
from adapters.probes.host_memory import machine_memory
from adapters.probes.intel import IntelProbe
from adapters.probes.metrics import Metrics
from adapters.probes.nvml import NvmlProbe
from adapters.probes.owners import Owners
from contracts.errors import Invalid
from contracts.ports import Probe

_log = structlog.get_logger("headstart.probes")

GROUP = "headstart.probes"
"""Entry points of this group are callables that take ``ProbeOptions`` and give a ``Probe``."""

VISIBLE = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeOptions:
    """What a probe is made with.

    Attributes
    ----------
    metrics : Metrics
        What is to be read.
    gpus : str or None
        Cards that LocalAI uses, as in ``CUDA_VISIBLE_DEVICES``; None: as its own environment
        says where that can be read, else as ours does, else all.
    attributes : bool
        Whether memory may be told apart by whose process holds it. Not where two LocalAIs run
        on this machine: what one holds is another program's to the other.
    shares_limits : bool
        Whether LocalAI may be in the control group that we are in.
    sys, proc, cgroup : Path
        Where the kernel's file systems are.
    environment : mapping
        Ours.
    """

    metrics: Metrics = field(default_factory=Metrics)
    gpus: str | None = None
    attributes: bool = True
    shares_limits: bool = True
    sys: Path = Path("/sys")
    proc: Path = Path("/proc")
    cgroup: Path = Path("/sys/fs/cgroup")
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)


Factory = Callable[[ProbeOptions], Probe]


def _nvml(options: ProbeOptions) -> Probe:
    owners = Owners(options.proc)

    def wanted() -> str | None:
        if options.gpus is not None:
            return options.gpus
        told = owners.environment(VISIBLE)
        return options.environment.get(VISIBLE) if told is None else told

    return NvmlProbe(
        options.metrics,
        wanted=wanted,
        owners=owners if options.attributes else None,
        host_memory=lambda: machine_memory(options.proc),
    )


def _amd(options: ProbeOptions) -> Probe:
    return AmdProbe(
        options.metrics, sys=options.sys, host_memory=lambda: machine_memory(options.proc)
    )


def _intel(options: ProbeOptions) -> Probe:
    return IntelProbe(options.metrics, sys=options.sys)


def _host(options: ProbeOptions) -> Probe:
    owners = Owners(options.proc)

    def bounded_pid() -> int | None:
        return min(owners.roots(), default=None)

    return HostProbe(
        options.metrics,
        bounded_pid=bounded_pid,
        bounded=options.shares_limits,
        proc=options.proc,
        cgroup=options.cgroup,
    )


OURS: Mapping[str, Factory] = {"nvml": _nvml, "amd": _amd, "intel": _intel, "host": _host}


def probe_for(options: ProbeOptions, names: tuple[str, ...] = ()) -> CombinedProbe:
    """One probe of those that are named; none named: all there are, plugged-in ones first.

    A plug-in that cannot be made is left out, with a line in the log.

    Raises
    ------
    Invalid
        Nothing has one of the names.
    """
    plugged = {entry.name: entry for entry in entry_points(group=GROUP)}
    known = (*plugged, *(name for name in OURS if name not in plugged))
    unknown = [name for name in names if name not in known]
    if unknown:
        raise Invalid(
            f"resource_monitoring.probes: no probe is called {unknown[0]!r}; "
            f"there are {', '.join(sorted(known))}"
        )
    made: list[tuple[str, Probe]] = []
    for name in names or known:
        probe = _plugged(plugged[name], options) if name in plugged else OURS[name](options)
        if probe is not None:
            made.append((name, probe))
    return CombinedProbe(made)


def _plugged(entry: EntryPoint, options: ProbeOptions) -> Probe | None:
    try:
        probe: Probe = entry.load()(options)
    except Exception as error:  # noqa: BLE001 - code of others; ours goes on without it
        _log.warning("probe_not_loaded", probe=entry.name, error=f"{type(error).__name__}: {error}")
        return None
    _log.info("probe_loaded", probe=entry.name)
    return probe
