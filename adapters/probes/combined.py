"""Several probes as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from adapters.probes.faults import Faults
from contracts.ports import Probe
from contracts.readings import GpuReading, ProbeReading, over_all

_SIMPLE = tuple(each.name for each in fields(ProbeReading) if each.name not in ("at_s", "gpus"))


class CombinedProbe:
    """Asks each probe in turn. Of two that tell the same, the first is heard.

    One that raises, which a probe may not, tells nothing until it does no more.
    """

    def __init__(self, probes: Sequence[tuple[str, Probe]]) -> None:
        self._probes = tuple(probes)
        self._faults = Faults("combined")

    @property
    def names(self) -> tuple[str, ...]:
        """Which probes these are."""
        return tuple(name for name, _ in self._probes)

    def read(self, now_s: float) -> ProbeReading:
        """What all of them tell, with the figures over all cards."""
        told: dict[str, Any] = {}
        gpus: dict[str, GpuReading] = {}
        for name, probe in self._probes:
            reading = self._ask(name, probe, now_s)
            if reading is None:
                continue
            for gpu in reading.gpus:
                gpus.setdefault(gpu.uuid, gpu)
            for field in _SIMPLE:
                value = getattr(reading, field)
                if value is not None:
                    told.setdefault(field, value)
        whole = ProbeReading(at_s=now_s, **told)
        return over_all(replace(whole, gpus=tuple(gpus.values()))) if gpus else whole

    def _ask(self, name: str, probe: Probe, now_s: float) -> ProbeReading | None:
        try:
            reading = probe.read(now_s)
        except Exception as error:  # noqa: BLE001 - a plug-in is code of others; ours does not end by it
            self._faults.begin(name, f"{type(error).__name__}: {error}")
            return None
        self._faults.end(name)
        return reading
