"""Which rung of a ladder answers a request soonest. Pure.

A model that is not resident is worth its load, and the room for it, before it can answer. A
lower rung that is there already may have said all before that; the choice is by the expected
time to the whole answer. Nobody is sent down for nothing: a rung has to gain ``MIN_GAIN_S``
over the model itself, and a lower rung as much over a higher one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contracts.ids import ModelId
from contracts.reasons import Reason
from contracts.variants import RungKind

MIN_GAIN_S = 0.25
"""What is gained has to be felt."""

SERVICE_S = 2.0
"""How long a request runs on its model's own GPU, where nobody has measured it."""

CPU_FACTOR = 8.0
"""How many times longer it takes on CPUs, where nobody has said or measured it."""

PARTIAL_SHARE = 0.5
"""Of what the CPU takes longer: with half of the layers there, half of it."""

OVERDUE_SHARE = 0.25
"""A load that is overdue is expected to take such a share of its time until now once more."""

NEVER = math.inf

REASONS: Mapping[RungKind, Reason] = {
    RungKind.QUANTISED: Reason.SMALLER_VARIANT,
    RungKind.PARTIAL: Reason.FEWER_GPU_LAYERS,
    RungKind.CPU: Reason.CPU_FALLBACK,
}
"""What answers say that come from such a rung."""

HOPELESS = frozenset(
    {
        Reason.NEVER_FITS,
        Reason.OUT_OF_MEMORY,
        Reason.GPU_YIELDED,
        Reason.GPU_YIELDED,
        Reason.NODE_LOST,
        Reason.UNKNOWN_MODEL,
    }
)
"""A load that is held for one of these has no end that anybody could tell."""


CROWDED = frozenset({Reason.NO_ROOM, Reason.GROUP_LIMIT, Reason.PINNED, Reason.MAY_WAIT})
"""Room is made in turns, if it can be made at all."""

TURN_S = 15.0
"""So long a busy model keeps its place before another one gets it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """One model that could answer, as it stands now.

    Attributes
    ----------
    wait_s : float
        Seconds until it can begin; ``NEVER``: nobody knows that it ever can.
    service_s : float
        Seconds that the answer then takes.
    """

    model: ModelId
    wait_s: float
    service_s: float

    @property
    def total_s(self) -> float:
        """Until the whole answer is there."""
        return self.wait_s + self.service_s


def choose(own: Prospect, rungs: Sequence[Prospect]) -> Prospect:
    """Who answers: the model itself, or one of its rungs, which are given the best first."""
    best = own
    for rung in rungs:
        if rung.total_s + MIN_GAIN_S < best.total_s:
            best = rung
    return best


def load_wait_s(
    *,
    held: Reason | None,
    expected_s: float | None,
    elapsed_s: float | None,
    cooldown_s: float = 0.0,
    waited_s: float = 0.0,
) -> float:
    """Until a model that is not resident can begin.

    Parameters
    ----------
    held : Reason or None
        Why it is not being loaded; None: it is, or will be.
    expected_s : float or None
        What its whole load should take; None: nobody knows, or it should be over.
    elapsed_s : float or None
        How long it has been loading; None: it has not begun.
    cooldown_s : float
        For how long no load is tried.
    waited_s : float
        How long it was waited for already: without room it is expected to take as long again.
    """
    if held in HOPELESS:
        return NEVER
    if elapsed_s is None:
        if expected_s is None:
            return NEVER
        room_s = max(TURN_S, waited_s) if held in CROWDED else 0.0
        return max(cooldown_s, room_s) + expected_s
    if expected_s is None or elapsed_s >= expected_s:
        return max(1.0, elapsed_s * OVERDUE_SHARE)
    return expected_s - elapsed_s


def queue_wait_s(*, ahead: int, slots: int | None, service_s: float) -> float:
    """Until one of ``slots`` is free with so many requests before this one; None: no limit."""
    if slots is None or ahead < slots:
        return 0.0
    return service_s * (ahead - slots + 1) / slots


def rung_service_s(
    kind: RungKind,
    *,
    measured_s: float | None,
    own_s: float | None,
    cpu_factor: float | None,
) -> float:
    """How long a request runs on a rung: measured there, else from the model's own time.

    Parameters
    ----------
    own_s : float or None
        What the model itself takes; None: not measured.
    cpu_factor : float or None
        What is configured as ``gpu_acceleration_factor``.
    """
    if measured_s is not None:
        return measured_s
    base_s = SERVICE_S if own_s is None else own_s
    factor = CPU_FACTOR if cpu_factor is None else cpu_factor
    if kind is RungKind.CPU:
        return base_s * factor
    if kind is RungKind.PARTIAL:
        return base_s * max(1.0, factor * PARTIAL_SHARE)
    return base_s
