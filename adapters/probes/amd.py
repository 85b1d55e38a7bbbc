"""AMD's cards, by what the amdgpu driver tells in sysfs. No library of the vendor's is needed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from adapters.probes.drm import DrmCard, cards_of, temperature_celsius
from adapters.probes.files import names_in, number_of, text_of
from adapters.probes.host_memory import HostMemory, machine_memory
from adapters.probes.metrics import Metrics, Pace
from contracts.readings import GpuProcess, GpuReading, ProbeReading

VENDOR = "0x1002"

APU_RATIO = 8
"""Where the host's memory that a card may take is so many times its own, it lives from that."""

MAX_PROCESSES = 32
_MEMORY_MAKERS = ("samsung", "hynix", "micron", "elpida", "infineon", "nanya", "winbond")


class AmdProbe:
    """Reads AMD's cards.

    Parameters
    ----------
    metrics : Metrics
        ``gpu`` says what is read beside memory.
    sys : Path
        Where sysfs is.
    host_memory : callable
        What a processor's own graphics take their memory from.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        sys: Path = Path("/sys"),
        host_memory: Callable[[], HostMemory | None] = machine_memory,
    ) -> None:
        self._metrics = metrics
        self._sys = sys
        self._host_memory = host_memory
        self._pace = Pace(metrics.slow_s)
        self._slow: dict[str, tuple[float | None, float | None]] = {}

    def read(self, now_s: float) -> ProbeReading:
        """Every card that tells of memory."""
        slowly = self._pace.due(now_s)
        cards = cards_of(self._sys, VENDOR)
        if slowly:
            self._slow = {card.address: self._read_slowly(card) for card in cards}
        processes = self._processes() if cards else {}
        readings = (self._look(card, processes.get(card.address)) for card in cards)
        return ProbeReading(at_s=now_s, gpus=tuple(each for each in readings if each is not None))

    def _look(self, card: DrmCard, processes: dict[int, int] | None) -> GpuReading | None:
        device = card.device
        total = number_of(device / "mem_info_vram_total")
        if total is None:
            return None
        used = number_of(device / "mem_info_vram_used")
        free = None if used is None else max(0, total - used)
        unified = self._is_apu(card, total)
        if unified:
            total, used, free = self._with_host_memory(card, total, used)
        percent = None
        if "utilization" in self._metrics.gpu:
            percent = number_of(device / "gpu_busy_percent")
        temperature, power = self._slow.get(card.address, (None, None))
        listed = sorted((processes or {}).items(), key=lambda each: (-each[1], each[0]))
        return GpuReading(
            uuid=text_of(device / "unique_id") or card.address,
            name=text_of(device / "product_name") or f"AMD {text_of(device / 'device') or 'GPU'}",
            accelerator="rocm",
            is_unified=unified,
            memory_total_bytes=total,
            memory_used_bytes=used,
            memory_free_bytes=free,
            utilization_ratio=None if percent is None else min(100, percent) / 100.0,
            temperature_celsius=temperature,
            power_watts=power,
            processes=None
            if processes is None
            else tuple(
                GpuProcess(pid=pid, memory_bytes=size) for pid, size in listed[:MAX_PROCESSES]
            ),
        )

    def _is_apu(self, card: DrmCard, vram_bytes: int) -> bool:
        gtt = number_of(card.device / "mem_info_gtt_total")
        maker = (text_of(card.device / "mem_info_vram_vendor") or "").lower()
        return gtt is not None and gtt >= APU_RATIO * vram_bytes and maker not in _MEMORY_MAKERS

    def _with_host_memory(
        self, card: DrmCard, vram_bytes: int, vram_used: int | None
    ) -> tuple[int, int | None, int | None]:
        """Its own small part and what it may take of the host's, as far as that is free."""
        gtt = number_of(card.device / "mem_info_gtt_total") or 0
        gtt_used = number_of(card.device / "mem_info_gtt_used")
        total = vram_bytes + gtt
        if vram_used is None or gtt_used is None:
            return total, None, None
        gtt_free = max(0, gtt - gtt_used)
        host = self._host_memory()
        if host is not None:
            gtt_free = min(gtt_free, host.available_bytes)
        return total, vram_used + gtt_used, max(0, vram_bytes - vram_used) + gtt_free

    def _read_slowly(self, card: DrmCard) -> tuple[float | None, float | None]:
        celsius = watts = None
        if "temperature" in self._metrics.gpu:
            celsius = temperature_celsius(card)
        if "power" in self._metrics.gpu:
            for folder in card.sensors():
                microwatts = number_of(folder / "power1_average")
                if microwatts is None:
                    microwatts = number_of(folder / "power1_input")
                watts = None if microwatts is None else microwatts / 1e6
        return celsius, watts

    def _processes(self) -> dict[str, dict[int, int]]:
        """Bytes by process, of each card that computes (its address), as the kernel's KFD tells."""
        topology = self._sys / "class/kfd/kfd/topology/nodes"
        found: dict[str, dict[int, int]] = {}
        addresses: dict[str, str] = {}
        for node in names_in(topology):
            gpu_id = text_of(topology / node / "gpu_id")
            address = _address(text_of(topology / node / "properties") or "")
            if gpu_id and gpu_id != "0" and address is not None:
                addresses[gpu_id] = address
                found[address] = {}
        table = self._sys / "class/kfd/kfd/proc"
        for pid in names_in(table):
            for gpu_id, address in addresses.items():
                size = number_of(table / pid / f"vram_{gpu_id}")
                if size and pid.isdecimal():
                    found[address][int(pid)] = size
        return found


def _address(properties: str) -> str | None:
    """PCI address out of a node's ``location_id`` and ``domain``."""
    fields: dict[str, int] = {}
    for line in properties.splitlines():
        name, _, value = line.partition(" ")
        if value.isdecimal():
            fields[name] = int(value)
    place = fields.get("location_id")
    if place is None:
        return None
    return f"{fields.get('domain', 0):04x}:{place >> 8:02x}:{place >> 3 & 31:02x}.{place & 7}"
