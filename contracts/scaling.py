"""How many replicas of something there shall be: what is asked, and what is answered."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from contracts.reasons import Reason


class ScalerKind(StrEnum):
    """What carries an order out."""

    READ = "read"
    """Nothing of ours: KEDA or whoever else reads the number."""
    LOCALAI = "localai"
    """Replicas of one model in LocalAI's distributed mode."""
    COMPOSE = "compose"
    """Containers of one service, through ``headstart compose-scaler``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingTarget:
    """Something that there can be several of, each serving requests.

    Attributes
    ----------
    models : tuple of str
        Names and patterns (``*``, ``?``) of the models whose requests it serves; empty: all.
    capacity : float
        Requests that one replica serves at once.
    start_s : float
        From an order until a new replica serves.
    smallest, largest : int
        Bounds. With ``smallest`` 0 it goes to none after ``idle_s`` without a request.
    utilisation : float
        Share of the capacity that is planned to be in use; the rest takes what comes in bursts.
    stabilisation_s : float
        Fewer are wanted only when that held for so long.
    panic_ratio : float
        So many times what is ready serves is asked for at once: everything is ordered that is
        needed, whatever ``step_out`` says, and nothing goes until ``stabilisation_s`` later.
    step_out, step_in : int
        Most replicas that one order adds, or takes away.
    cost_per_hour, budget_per_hour : float or None
        In whatever money: bounds the replicas as ``largest`` does.
    dry_run : bool
        Decide and say, order nothing.
    kind, place : ScalerKind, str
        What carries orders out, and the name that it knows (model or service).
    """

    name: str
    models: tuple[str, ...] = ()
    capacity: float = 1.0
    start_s: float = 60.0
    smallest: int = 1
    largest: int = 1
    utilisation: float = 0.8
    idle_s: float = 900.0
    stabilisation_s: float = 300.0
    panic_ratio: float = 2.0
    step_out: int = 1_000
    step_in: int = 1
    cost_per_hour: float | None = None
    budget_per_hour: float | None = None
    dry_run: bool = False
    kind: ScalerKind = ScalerKind.READ
    place: str = ""

    @property
    def most(self) -> int:
        """The most replicas that bounds and budget allow, never under ``smallest``."""
        if self.budget_per_hour is None or not self.cost_per_hour:
            return self.largest
        affordable = int(self.budget_per_hour / self.cost_per_hour)
        return max(self.smallest, min(self.largest, affordable))


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingConfig:
    """What is scaled, and where the helper for compose services listens."""

    targets: tuple[ScalingTarget, ...] = ()
    compose_url: str | None = None
    compose_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicas:
    """What there is. ``wanted``: what was asked for last, by whoever; None: not told."""

    ready: int
    wanted: int | None = None

    @property
    def starting(self) -> int:
        """Asked for, and not there yet."""
        return max(0, (self.wanted or 0) - self.ready)


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Requests at once.

    Attributes
    ----------
    in_flight, waiting : int
        Now.
    expected : float or None
        What is to be reckoned with when a replica that is ordered now serves; None: no forecast
        that may be used.
    """

    in_flight: int
    waiting: int
    expected: float | None = None

    @property
    def live(self) -> int:
        """All that somebody waits for now."""
        return self.in_flight + self.waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class ScalingState:
    """What one target's decisions remember; it goes in and comes out.

    Attributes
    ----------
    load, at_s : float or None, float
        Decayed average of requests at once, and of when it is.
    peaks : tuple of (float, int)
        Replicas that were needed, as (begin of a slice of time, most within it), oldest first.
    ordered : int or None
        The last order; None: none yet.
    starting_since_s : float or None
        Since when there is less than was ordered.
    calm_at_s : float
        Nothing goes before: somebody panicked.
    busy_at_s : float or None
        When something was last in flight or waiting.
    failures, retry_at_s : int, float
        Orders in a row that were not taken, and when the next is tried.
    """

    load: float | None = None
    at_s: float = 0.0
    peaks: tuple[tuple[float, int], ...] = ()
    ordered: int | None = None
    starting_since_s: float | None = None
    calm_at_s: float = 0.0
    busy_at_s: float | None = None
    failures: int = 0
    retry_at_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """One answer: how many there shall be, and why, with the numbers it rests on.

    Attributes
    ----------
    changed : bool
        Whether this is another number than was ordered before.
    needed : int or None
        What now and the forecast need, whatever the bounds allow; None: not told.
    most : int or None
        The most that bounds and budget allow; None: not told.
    current : int or None
        Replicas that serve; None: nobody tells us, as where others scale by our number.
    """

    target: str
    at_s: float
    replicas: int
    reason: Reason
    evidence: Mapping[str, float] = field(default_factory=dict)
    changed: bool = False
    needed: int | None = None
    most: int | None = None
    current: int | None = None


class Scaler(Protocol):
    """Carries orders out. Raises Transient when it cannot now, Permanent when it never will."""

    async def replicas(self, place: str) -> Replicas: ...  # noqa: D102

    async def scale(self, place: str, replicas: int) -> None:
        """Ask for so many; returns once that was taken, not once they are there."""
        ...


class ScalingStore(Protocol):
    """The newest answer of each target, for those who read it. Raises Transient."""

    async def put_scaling(self, scaling: Scaling) -> None: ...  # noqa: D102

    async def scalings(self) -> Mapping[str, Scaling]: ...  # noqa: D102
