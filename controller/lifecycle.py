"""Which residency may follow which: everything that a model's state may do lives here.

The table is the whole truth; ``fold`` applies it and never sets a residency otherwise.
A step that the table does not hold leaves the state as it is: events may come late or twice.

::

    COLD ──order──▶ LOADING ──loaded──▶ HOT ──drain──▶ DRAINING ──unloaded──▶ COLD
      ▲                │  │              ▲                │
      │                │  └─failed─▶ FAILED               │ given up
      └──given up──────┘                 └────────────────┘
"""

from __future__ import annotations

from enum import StrEnum

from contracts.world import Residency


class Step(StrEnum):
    """What can happen to a model."""

    LOAD = "load"
    LOADED = "loaded"
    LOAD_FAILED = "load_failed"
    LOAD_GIVEN_UP = "load_given_up"
    DRAIN = "drain"
    DRAIN_GIVEN_UP = "drain_given_up"
    UNLOADED = "unloaded"
    SEEN_RESIDENT = "seen_resident"
    SEEN_ABSENT = "seen_absent"


_ALL = frozenset(Residency)
_OUT = frozenset({Residency.COLD, Residency.FAILED})

_TABLE: dict[Step, tuple[frozenset[Residency], Residency]] = {
    Step.LOAD: (_OUT, Residency.LOADING),
    Step.LOADED: (_OUT | {Residency.LOADING}, Residency.HOT),
    Step.LOAD_FAILED: (_OUT | {Residency.LOADING}, Residency.FAILED),
    Step.LOAD_GIVEN_UP: (frozenset({Residency.LOADING}), Residency.COLD),
    Step.DRAIN: (frozenset({Residency.HOT}), Residency.DRAINING),
    Step.DRAIN_GIVEN_UP: (
        frozenset({Residency.DRAINING, Residency.UNLOADING}),
        Residency.HOT,
    ),
    Step.UNLOADED: (_ALL, Residency.COLD),
    # A poll may correct what we believe, but not what we ordered and still wait for.
    Step.SEEN_RESIDENT: (_OUT, Residency.HOT),
    Step.SEEN_ABSENT: (frozenset({Residency.HOT}), Residency.COLD),
}


def follow(current: Residency, step: Step) -> Residency:
    """The residency after ``step``; ``current`` where the step does not apply."""
    allowed, after = _TABLE[step]
    return after if current in allowed else current


def applies(current: Residency, step: Step) -> bool:
    """Whether ``step`` changes anything from ``current``."""
    return current in _TABLE[step][0]
