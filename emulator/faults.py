"""Scripted faults: what goes wrong, with which model, when and how often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from contracts.errors import Invalid
from simulator.localai import LocalAi
from simulator.localai_state import ModelFaults

FAULT_KINDS: dict[str, tuple[str, ...]] = {
    "load_fail": ("model", "times", "message"),
    "load_slow": ("model", "factor", "extra_s"),
    "load_hang": ("model",),
    "cooldown": ("model", "for_s"),
    "unload_lies": ("model",),
    "unload_hang": ("model",),
    "unload_slow": ("model", "extra_s"),
    "unload_500": ("model", "times"),
    "unload_404": ("model", "times"),
    "evict": ("model",),
    "restart": ("for_s",),
    "backend_crash": ("model", "after_tokens"),
    "answer_error": ("model", "times", "after_tokens", "message"),
    "answer_slow": ("model", "extra_s"),
    "error_500": ("model", "times"),
    "disconnect": ("model", "times", "after_tokens"),
    "memory": ("bytes",),
    "peer_offline": ("model",),
    "refuse_connections": ("for_s",),
}
"""Each kind, and the keys that it takes besides ``at_s`` and ``for_s``."""

_NUMBERS = ("times", "after_tokens", "bytes", "at_s", "for_s", "factor", "extra_s")
_NEEDS_MODEL = frozenset(
    {
        "load_fail", "load_slow", "load_hang", "cooldown", "unload_lies", "unload_hang",
        "unload_slow", "unload_500", "unload_404", "evict", "peer_offline",
        "backend_crash",
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One armed fault.

    Attributes
    ----------
    model : str or None
        None: any model.
    times : int or None
        How often it happens; None: until it is cleared.
    after_tokens : int or None
        In the middle of an answer; None: at once, or before the first token.
    at_s : float
        When it is armed, in seconds from now.
    for_s : float or None
        How long it stays armed; None: until it is cleared.
    """

    kind: str
    model: str | None = None
    times: int | None = None
    after_tokens: int | None = None
    message: str | None = None
    factor: float = 1.0
    extra_s: float = 0.0
    bytes: int = 0
    at_s: float = 0.0
    for_s: float | None = None


def parse_fault(value: object) -> Fault:
    """A fault as a file or a request gives it; Invalid when it makes no sense."""
    if not isinstance(value, Mapping):
        raise Invalid("a fault must be an object with a kind")
    kind = value.get("kind")
    if not isinstance(kind, str) or kind not in FAULT_KINDS:
        raise Invalid(f"fault kind {kind!r}: must be one of {', '.join(FAULT_KINDS)}")
    allowed = {"kind", "at_s", "for_s", *FAULT_KINDS[kind]}
    unknown = sorted(set(map(str, value)) - allowed)
    if unknown:
        raise Invalid(f"fault {kind}: {', '.join(unknown)}: it takes {', '.join(sorted(allowed))}")
    if kind in _NEEDS_MODEL and not isinstance(value.get("model"), str):
        raise Invalid(f"fault {kind}: needs a model")
    if kind == "refuse_connections" and not value.get("for_s"):
        raise Invalid(f"fault {kind}: needs for_s, or nobody could end it")
    for key in _NUMBERS:
        number = value.get(key, 0)
        if isinstance(number, bool) or not isinstance(number, int | float) or number < 0:
            raise Invalid(f"fault {kind}: {key} = {number!r}: must be a number, 0 or more")
    return Fault(**dict(value))


class FaultBoard:
    """Faults that are armed now. Those of loads and memory are set in the state machine."""

    def __init__(self, machine: LocalAi) -> None:
        self._machine = machine
        self._armed: list[Fault] = []

    def armed(self) -> tuple[Fault, ...]:
        """Every fault that is armed, the newest last."""
        return tuple(self._armed)

    def arm(self, fault: Fault, now_s: float) -> None:
        """From here on it happens. Crashes and refused connections are the caller's to do."""
        machine = self._machine
        model = fault.model or ""
        match fault.kind:
            case "load_fail":
                error = fault.message or ModelFaults().load_error
                times = fault.times if fault.times is not None else 2**31
                self._set(model, load_failures=times, load_error=error)
            case "load_slow":
                self._set(model, load_factor=fault.factor, load_extra_s=fault.extra_s)
            case "load_hang":
                self._set(model, load_hangs=True)
            case "unload_lies":
                self._set(model, unload_lies=True)
            case "unload_hang":
                self._set(model, unload_hangs=True)
            case "unload_slow":
                self._set(model, unload_extra_s=fault.extra_s)
            case "cooldown":
                machine.cool_down(model, fault.for_s or 10.0, now_s)
                return
            case "memory":
                machine.set_program_bytes(fault.bytes)
            case _:
                pass  # looked up when a request comes
        self._armed.append(fault)

    def disarm(self, fault: Fault) -> None:
        """It does not happen any more; what it did stays done, but for taken memory."""
        if fault not in self._armed:
            return
        self._armed.remove(fault)
        if fault.kind == "memory":
            self._machine.set_program_bytes(0)
        if fault.kind == "unload_lies":
            self._machine.clear_leaks()
        if fault.model is not None:
            self._machine.set_faults(fault.model, ModelFaults())
            for other in tuple(self._armed):
                if other.model == fault.model and other.kind.startswith(("load", "unload")):
                    self._armed.remove(other)
                    self.arm(other, 0.0)

    def clear(self) -> None:
        """Disarm everything."""
        for fault in self.armed():
            self.disarm(fault)

    def peek(self, kind: str, model: str) -> Fault | None:
        """The armed fault of this kind for this model, without using it up."""
        for fault in self._armed:
            if fault.kind == kind and fault.model in (None, model):
                return fault
        return None

    def take(self, kind: str, model: str) -> Fault | None:
        """The armed fault of this kind for this model, used up once."""
        fault = self.peek(kind, model)
        if fault is None or fault.times is None:
            return fault
        at = self._armed.index(fault)
        if fault.times <= 1:
            del self._armed[at]
        else:
            self._armed[at] = replace(fault, times=fault.times - 1)
        return fault if fault.times > 0 else None

    def _set(self, model: str, **changes: Any) -> None:
        self._machine.set_faults(model, replace(self._machine.faults(model), **changes))
