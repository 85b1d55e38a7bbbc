"""What an emulator is told at its start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emulator.faults import Fault
from emulator.models import MIB, EmulatedModel
from emulator.versions import NEWEST

__all__ = ["MIB", "EmulatorOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatorOptions:
    """Everything that ``headstart emulate`` can be asked for.

    Attributes
    ----------
    capacity_bytes : int or None
        GPU memory of the emulated machine; None: loads always find room.
    model_limit : int or None
        LocalAI's ``--max-active-backends``.
    watchdog_idle_s : float or None
        LocalAI's ``--watchdog-idle-timeout``.
    watchdog_busy_s, reclaim_over : float or None
        LocalAI's ``--watchdog-busy-timeout`` and ``--memory-reclaimer-threshold`` (a share).
    max_concurrent : int or None
        LocalAI's ``--max-concurrent-backend-requests``: of all models at once.
    exact_load_times : bool
        A load takes exactly the model's ``load_s``, without LocalAI's 2 s steps.
    user_keys : tuple of str
        Keys that may infer and not manage, as those of users without an admin's role.
    version : tuple of int
        Major and minor; calls that came later are missing.
    has_ui : bool
        Without it the paths that its UI uses are missing as well (``--disable-webui``).
    peers : tuple of mapping
        Other machines that it works with: ``name``, ``kind`` (worker, federated,
        llama_cpp_worker or mlx_worker) and ``online``.
    event_log : Path or None
        Every event as a line of JSON, besides the bounded list in memory.
    faults : tuple of Fault
        Faults to arm at the start.
    """

    models: tuple[EmulatedModel, ...]
    host: str = "127.0.0.1"
    port: int = 8081
    capacity_bytes: int | None = None
    model_limit: int | None = None
    watchdog_idle_s: float | None = None
    watchdog_busy_s: float | None = None
    reclaim_over: float | None = None
    max_concurrent: int | None = None
    exact_load_times: bool = False
    api_keys: tuple[str, ...] = field(default=(), repr=False)
    user_keys: tuple[str, ...] = field(default=(), repr=False)
    version: tuple[int, int] = NEWEST
    has_ui: bool = True
    peers: tuple[Mapping[str, Any], ...] = ()
    event_log: Path | None = None
    faults: tuple[Fault, ...] = ()

    @property
    def all_keys(self) -> tuple[str, ...]:
        """Keys that are let in; none: everybody is."""
        return (*self.api_keys, *self.user_keys)
