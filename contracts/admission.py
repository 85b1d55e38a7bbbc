"""Who may ask, who waits and where requests go, as it is configured for gateways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from contracts.events import PriorityClass
from contracts.variants import Fallback


@dataclass(frozen=True, slots=True, kw_only=True)
class PriorityWeights:
    """What a point of each term of the priority score weighs (``api/gateway/priority.py``).

    The score is counted in seconds of waiting: ``ageing`` is points per second waited, the
    others are points.
    """

    user: float = 15.0
    service_level: float = 60.0
    latency: float = 2.0
    efficiency: float = 5.0
    ageing: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueConfig:
    """Admission: capacities per class, and how long each may wait for a slot.

    Attributes
    ----------
    longest_wait_s : float
        A request of whatever class that has waited for a slot so long takes one of the next two.
    max_preemptions : int
        How often the same request, or the same client, may be preempted within ten minutes.
    """

    capacity: Mapping[PriorityClass, int] = field(
        default_factory=lambda: {
            PriorityClass.REALTIME: 10,
            PriorityClass.BATCH: 50,
            PriorityClass.BACKGROUND: 100,
        }
    )
    timeout_s: Mapping[PriorityClass, float] = field(
        default_factory=lambda: {
            PriorityClass.REALTIME: 30.0,
            PriorityClass.BATCH: 120.0,
            PriorityClass.BACKGROUND: 600.0,
        }
    )
    weights: PriorityWeights = field(default_factory=PriorityWeights)
    longest_wait_s: float = 120.0
    max_preemptions: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeoutConfig:
    """Limits of one model's requests; None: the gateway's own hold."""

    connect_s: float | None = None
    first_byte_s: float | None = None
    between_bytes_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BalancingConfig:
    """How a node is chosen where several can serve a request.

    Attributes
    ----------
    strategy : str
        ``resource-aware`` or ``weighted-round-robin``.
    weights : mapping
        For the latter: accelerator to its share of the requests.
    circuit_failures : int
        So many failures in a row shut a node, or a model on a node, off for a while; 0: never.
    """

    strategy: str = "resource-aware"
    weights: Mapping[str, float] = field(
        default_factory=lambda: {
            "cuda": 0.6,
            "rocm": 0.2,
            "vulkan": 0.2,
            "sycl": 0.2,
            "metal": 0.2,
            "cpu": 0.2,
        }
    )
    circuit_failures: int = 3


class ClassHeader(StrEnum):
    """What a caller may ask for with ``X-Headstart-Class``."""

    LOWER = "lower"
    """Its key's class, or one that waits longer."""
    ANY = "any"
    FIXED = "fixed"
    """Nothing but what it has anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallerKey:
    """One key that callers may show, and what it may do. The key itself is not kept.

    Attributes
    ----------
    digest : bytes
        SHA-256 of the key: enough where keys are random, since nobody can try them all.
    priority : PriorityClass or None
        Class of its requests; None: the model's.
    requests_per_min : float or None
        Inference requests; None: as many as one likes.
    models : tuple of str
        Names and patterns (``*``, ``?``) of the models that it may use; empty: all.
    weight : float
        What its requests count for in admission, beside those of other keys.
    goes_on : bool
        It may be LocalAI's own as well, and so is shown to it where no other one is configured.
    """

    name: str
    digest: bytes = field(repr=False)
    priority: PriorityClass | None = None
    class_header: ClassHeader = ClassHeader.LOWER
    requests_per_min: float | None = None
    models: tuple[str, ...] = ()
    weight: float = 1.0
    goes_on: bool = False
    fallback: Fallback | None = None
    """Whether its requests may be answered from a lower rung; None: as the model says."""
