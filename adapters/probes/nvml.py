"""NVIDIA's cards and MIG instances, by the driver's own library (``nvidia-ml-py``).

Every figure of every card may be missing by itself: not supported, not permitted, unknown to
an old driver. The driver may go and come back; a look then begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypedDict, TypeVar

import pynvml

from adapters.probes.faults import Faults
from adapters.probes.host_memory import HostMemory, machine_memory
from adapters.probes.metrics import Metrics, Pace
from adapters.probes.nvml_memory import CardMemory, memory_of
from adapters.probes.nvml_processes import processes_of
from adapters.probes.owners import Owners
from adapters.probes.visible import visible
from contracts.readings import GpuReading, ProbeReading

T = TypeVar("T")

AGAIN_S = 30.0
"""A driver that is not there is looked for so often."""

HINT = (
    "GPU figures come from LocalAI, if it has any; a container needs the driver capability "
    "`utility` beside `compute`"
)
GONE_HINT = "after an update of the driver this process must be started anew"
NUMBER_HINT = "CUDA may count GPUs in another order than the driver: name them by UUID"

MIG_MODE = "mig_mode"

_DRIVER_GONE = ("Uninitialized", "DriverNotLoaded", "LibRmVersionMismatch")
_CARD_GONE = ("GpuIsLost", "ResetRequired")


class _Slow(TypedDict, total=False):
    temperature_celsius: float | None
    power_watts: float | None


@dataclass(slots=True)
class _Card:
    handle: Any
    uuid: str
    name: str
    parent_uuid: str | None = None
    slow: _Slow = field(default_factory=_Slow)


class _DriverGoneError(Exception):
    """The driver is not there any more."""


class _CardGoneError(Exception):
    """One card is not there any more; the others are."""


class NvmlProbe:
    """Reads NVIDIA's cards.

    Parameters
    ----------
    metrics : Metrics
        ``gpu`` says what is read beside memory.
    wanted : callable
        Which cards count, as ``CUDA_VISIBLE_DEVICES`` says it; None: all.
    owners : Owners or None
        Tells LocalAI's processes from others; None: nobody does.
    host_memory : callable
        What cards without memory of their own take theirs from.
    binding : module
        ``pynvml``; another package has the same name and fewer functions.
    """

    def __init__(
        self,
        metrics: Metrics,
        *,
        wanted: Callable[[], str | None] = lambda: None,
        owners: Owners | None = None,
        host_memory: Callable[[], HostMemory | None] = machine_memory,
        binding: Any = pynvml,
    ) -> None:
        self._metrics = metrics
        self._wanted = wanted
        self._owners = owners
        self._host_memory = host_memory
        self._nvml = binding
        self._faults = Faults("nvml")
        self._pace = Pace(metrics.slow_s)
        self._cards: dict[str, _Card] = {}
        self._unsupported: set[tuple[str, str]] = set()
        self._is_open = False
        self._again_at_s: float | None = None
        self._has_lost = False
        self._driver_gone = _errors(binding, _DRIVER_GONE)
        self._card_gone = _errors(binding, _CARD_GONE)

    def read(self, now_s: float) -> ProbeReading:
        """Every card that counts; none where there is no driver."""
        slowly = self._is_open and self._pace.due(now_s)
        if slowly and self._has_lost:
            self._close()  # a card that was reset is only seen by who begins anew
        if not self._is_open:
            if not self._open(now_s):
                return ProbeReading(at_s=now_s)
            slowly = self._pace.due(now_s)
        try:
            if slowly:
                self._unsupported.clear()
                self._find_cards()
            gpus = tuple(self._look_at_all(slowly=slowly))
        except _DriverGoneError as error:
            self._close()
            self._faults.begin("driver", str(error), hint=GONE_HINT)
            return ProbeReading(at_s=now_s)
        self._faults.end("driver")
        return ProbeReading(at_s=now_s, gpus=gpus)

    def close(self) -> None:
        """Let go of the driver."""
        if self._is_open:
            self._close()

    def _open(self, now_s: float) -> bool:
        if self._again_at_s is not None and 0.0 <= self._again_at_s - now_s <= AGAIN_S:
            return False
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            self._again_at_s = now_s + AGAIN_S
            self._faults.begin("library", str(error), hint=HINT)
            return False
        self._faults.end("library")
        self._is_open, self._again_at_s = True, None
        self._pace.again()
        return True

    def _close(self) -> None:
        self._is_open = self._has_lost = False
        self._cards = {}
        try:
            self._nvml.nvmlShutdown()
        except self._nvml.NVMLError:
            # It is gone, which is why it is let go of.
            return

    def _find_cards(self) -> None:
        """All cards, MIG instances in the place of the card that they are a part of."""
        count = self._ask("count", "", self._nvml.nvmlDeviceGetCount)
        found: list[_Card] = []
        for place in range(count or 0):
            try:
                found.extend(self._cards_at(place))
            except _CardGoneError as error:
                self._lose(str(place), error)
        seen = visible(
            [card.uuid for card in found],
            self._wanted(),
            parents=[card.parent_uuid for card in found],
        )
        if seen.by_number and len({card.name for card in found}) > 1:
            self._faults.begin(
                "order", "GPUs of several kinds are named by number", hint=NUMBER_HINT
            )
        before = self._cards
        self._cards = {}
        for card in (found[place] for place in seen.places):
            if card.uuid in before:
                card.slow = before[card.uuid].slow
            self._cards[card.uuid] = card

    def _cards_at(self, place: int) -> list[_Card]:
        subject = str(place)
        handle = self._ask("handle", subject, lambda: self._nvml.nvmlDeviceGetHandleByIndex(place))
        card = None if handle is None else self._card(handle)
        if card is None:
            return []
        cards = self._instances(card) or [card]
        self._faults.end("card", subject=subject)
        return cards

    def _lose(self, subject: str, error: _CardGoneError) -> None:
        self._has_lost = True
        self._faults.begin("card", str(error), subject=subject)

    def _card(self, handle: Any, parent_uuid: str | None = None) -> _Card | None:
        uuid = _text(self._ask("uuid", "", lambda: self._nvml.nvmlDeviceGetUUID(handle)))
        if not uuid:
            return None
        name = _text(self._ask("name", uuid, lambda: self._nvml.nvmlDeviceGetName(handle)))
        return _Card(handle, uuid, name, parent_uuid)

    def _instances(self, card: _Card) -> list[_Card]:
        nvml = self._nvml
        mode = self._ask(MIG_MODE, card.uuid, lambda: nvml.nvmlDeviceGetMigMode(card.handle)[0])
        if not mode:
            return []
        most = self._ask(
            "mig_count", card.uuid, lambda: nvml.nvmlDeviceGetMaxMigDeviceCount(card.handle)
        )
        found: list[_Card] = []
        for place in range(most or 0):
            try:
                handle = nvml.nvmlDeviceGetMigDeviceHandleByIndex(card.handle, place)
            except nvml.NVMLError:
                continue  # no instance has this place
            instance = self._card(handle, card.uuid)
            if instance is not None:
                found.append(instance)
        return found

    def _look_at_all(self, *, slowly: bool) -> Iterator[GpuReading]:
        for card in self._cards.values():
            try:
                reading = self._look(card, slowly=slowly)
            except _CardGoneError as error:
                self._lose(card.uuid, error)
            else:
                self._faults.end("card", subject=card.uuid)
                yield reading

    def _look(self, card: _Card, *, slowly: bool) -> GpuReading:
        memory = self._memory(card)
        processes = processes_of(
            self._nvml, card.handle, self._asker(card), total_bytes=memory.total_bytes
        )
        if slowly:
            card.slow = self._slow(card)
        utilization = None
        if "utilization" in self._metrics.gpu:
            percent = self._ask(
                "utilization",
                card.uuid,
                lambda: self._nvml.nvmlDeviceGetUtilizationRates(card.handle).gpu,
            )
            utilization = None if percent is None else min(100, percent) / 100.0
        held = None if processes is None else processes.held(self._owners)
        others = None
        if held is not None and memory.total_bytes is not None and memory.free_bytes is not None:
            others = max(0, memory.total_bytes - memory.free_bytes - held)
        return GpuReading(
            uuid=card.uuid,
            name=card.name,
            accelerator="cuda",
            parent_uuid=card.parent_uuid,
            is_unified=memory.is_unified,
            memory_total_bytes=memory.total_bytes,
            memory_used_bytes=memory.used_bytes,
            memory_free_bytes=memory.free_bytes,
            memory_reserved_bytes=memory.reserved_bytes,
            used_by_others_bytes=others,
            utilization_ratio=utilization,
            processes=None if processes is None else processes.largest(),
            **card.slow,
        )

    def _memory(self, card: _Card) -> CardMemory:
        return memory_of(
            self._nvml,
            card.handle,
            name=card.name,
            is_instance=card.parent_uuid is not None,
            ask=self._asker(card),
            host_memory=self._host_memory,
        )

    def _slow(self, card: _Card) -> _Slow:
        told: _Slow = {}
        nvml = self._nvml
        if "temperature" in self._metrics.gpu:
            sensor = getattr(nvml, "NVML_TEMPERATURE_GPU", 0)
            celsius = self._ask(
                "temperature", card.uuid, lambda: nvml.nvmlDeviceGetTemperature(card.handle, sensor)
            )
            told["temperature_celsius"] = None if celsius is None else float(celsius)
        if "power" in self._metrics.gpu:
            milliwatts = self._ask(
                "power", card.uuid, lambda: nvml.nvmlDeviceGetPowerUsage(card.handle)
            )
            told["power_watts"] = None if milliwatts is None else milliwatts / 1000.0
        return told

    def _asker(self, card: _Card) -> Callable[[str, Callable[[], Any]], Any]:
        return lambda what, call: self._ask(what, card.uuid, call)

    def _ask(self, what: str, subject: str, call: Callable[[], T]) -> T | None:
        """One figure; what is not supported is not asked for again before the next slow look."""
        if (what, subject) in self._unsupported:
            return None
        try:
            answer = call()
        except self._driver_gone as error:
            raise _DriverGoneError(str(error)) from error
        except self._card_gone as error:
            raise _CardGoneError(str(error)) from error
        except (self._nvml.NVMLError, AttributeError) as error:
            # A missing attribute is a function that an older binding does not have.
            self._unsupported.add((what, subject))
            unsupported = isinstance(error, self._nvml.NVMLError_NotSupported)
            if what != MIG_MODE or not unsupported:  # few cards can be parted
                self._faults.begin(what, str(error), subject=subject, usual=unsupported)
            return None
        self._faults.end(what, subject=subject)
        return answer


def _errors(binding: Any, names: tuple[str, ...]) -> tuple[type[Exception], ...]:
    found = (getattr(binding, f"NVMLError_{name}", None) for name in names)
    return tuple(error for error in found if isinstance(error, type))


def _text(value: Any) -> str:
    """A name or UUID; old bindings give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value or "")
