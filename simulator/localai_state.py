"""What the LocalAI state machine remembers, and the times that LocalAI v4.9 uses."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from simulator.localai_effects import CallerId, CallKind, StopCause

BASE_COOLDOWN_S = 10.0
MAX_COOLDOWN_S = 300.0


def cooldown_s(failures: int) -> float:
    """Seconds without a new try after so many failed loads in a row: 10, 20, 40 … 300."""
    return min(MAX_COOLDOWN_S, BASE_COOLDOWN_S * 2.0 ** min(failures - 1, 20))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAiConfig:
    """Times and limits; the defaults are LocalAI's own.

    Attributes
    ----------
    model_limit : int or None
        ``max_active_backends``; None: no limit.
    watchdog_idle_s : float or None
        Unload a model that was idle for so long; None: never.
    start_s : float
        From the start of a backend's process until it takes the weights. LocalAI asks once at
        once and then each 2 s, so a load takes at least 2 s.
    stop_s : float
        Time to stop an idle model.
    stop_wait_s : float
        How long a stop waits for a busy model.
    health_cache_s : float
        How long a backend that answered counts as alive.
    """

    model_limit: int | None = None
    watchdog_idle_s: float | None = None
    watchdog_interval_s: float = 0.5
    start_s: float = 2.0
    stop_s: float = 0.1
    stop_wait_s: float = 30.0
    eviction_retries: int = 30
    eviction_retry_s: float = 1.0
    health_cache_s: float = 30.0
    memory_error: str = "CUDA out of memory"
    unknown_error: str = "failed to load /models/{model}: no such file"

    def exact(self) -> LocalAiConfig:
        """The same without LocalAI's own overheads: a load takes exactly its ``load_s``."""
        return replace(self, start_s=0.0, stop_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFaults:
    """What goes wrong with one model.

    Attributes
    ----------
    load_failures : int
        So many of its next loads fail, at the end of their time, with ``load_error``.
    load_factor, load_extra_s : float
        Its weights take ``load_s * load_factor + load_extra_s``.
    load_hangs, unload_hangs : bool
        Neither ends by itself.
    unload_extra_s : float
        A stop takes so much longer.
    unload_lies : bool
        A stop is answered well, but the memory stays taken.
    """

    load_failures: int = 0
    load_error: str = "CUDA out of memory"
    load_factor: float = 1.0
    load_extra_s: float = 0.0
    load_hangs: bool = False
    unload_hangs: bool = False
    unload_extra_s: float = 0.0
    unload_lies: bool = False

    def one_failure_less(self) -> ModelFaults:
        """After one of the failures has happened."""
        return replace(self, load_failures=self.load_failures - 1)


class Phase(Enum):
    """How far a load is."""

    ROOM = auto()
    """Waits for a busy model to be evictable; nothing runs yet."""
    STARTING = auto()
    """The process starts. It goes on even if its caller leaves."""
    WEIGHTS = auto()


@dataclass(slots=True, kw_only=True)
class Call:
    """A call that has no end yet."""

    kind: CallKind
    model: str
    cold: bool
    cause: StopCause
    left: bool = False
    queued: bool = False
    running: bool = False


@dataclass(slots=True, kw_only=True)
class Load:
    """A load that runs, and who waits for it."""

    leader: CallerId
    followers: deque[CallerId] = field(default_factory=deque)
    phase: Phase = Phase.ROOM
    wake_s: float = 0.0
    attempts: int = 0
    error: str | None = None
    holds_memory: bool = False


@dataclass(slots=True, kw_only=True)
class Stop:
    """A stop that waits for a busy model (``ends_at_s`` None) or is about to end."""

    caller: CallerId
    deadline_s: float
    ends_at_s: float | None = None


@dataclass(slots=True)
class ModelState:
    """Everything about one name that is not in the node's accounts.

    ``gate`` holds calls that wait behind a stop, in their order, and stops that wait behind a
    load or another stop; ``stop_deadlines_s`` says when those give up.
    """

    pinned: bool = False
    faults: ModelFaults = field(default_factory=ModelFaults)
    failures: int = 0
    cooldown_until_s: float = 0.0
    healthy_at_s: float = 0.0
    ghost_until_s: float | None = None
    load: Load | None = None
    stop: Stop | None = None
    gate: deque[CallerId] = field(default_factory=deque)
    stop_deadlines_s: dict[CallerId, float] = field(default_factory=dict)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing runs or waits here."""
        return self.load is None and self.stop is None and not self.gate
