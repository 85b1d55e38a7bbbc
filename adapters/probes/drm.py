"""Graphics cards in sysfs: which there are, and their sensors."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from adapters.probes.files import names_in, number_of, text_of

_CARD = re.compile(r"card\d+")


@dataclass(frozen=True, slots=True)
class DrmCard:
    """One card. ``address`` is its place on the bus, which stays over restarts."""

    folder: Path
    address: str

    @property
    def device(self) -> Path:
        """What the driver tells of the device."""
        return self.folder / "device"

    def sensors(self) -> tuple[Path, ...]:
        """Folders with temperature and power."""
        top = self.device / "hwmon"
        return tuple(top / name for name in names_in(top))


def cards_of(sys: Path, vendor: str) -> tuple[DrmCard, ...]:
    """Cards of one vendor (such as ``0x1002``), by name; connectors are none."""
    top = sys / "class/drm"
    found = []
    for name in names_in(top):
        folder = top / name
        if _CARD.fullmatch(name) and (text_of(folder / "device/vendor") or "").lower() == vendor:
            found.append(DrmCard(folder, _address_of(folder)))
    return tuple(found)


def temperature_celsius(card: DrmCard) -> float | None:
    """The first sensor's; None where there is none."""
    for folder in card.sensors():
        for name in names_in(folder):
            if name.startswith("temp") and name.endswith("_input"):
                millidegrees = number_of(folder / name)
                if millidegrees is not None:
                    return millidegrees / 1000.0
    return None


def _address_of(folder: Path) -> str:
    for line in (text_of(folder / "device/uevent") or "").splitlines():
        name, _, value = line.partition("=")
        if name == "PCI_SLOT_NAME":
            return value
    return (folder / "device").resolve().name
