"""Decisions in plain words. No clock, no I/O."""

from __future__ import annotations

from typing import assert_never

from contracts.plan import Decision, Outcome
from contracts.reasons import Reason, explain

_LOADS = frozenset({Reason.DEMAND, Reason.FORECAST, Reason.PRELOAD, Reason.PINNED})

_UNLOADS = frozenset(
    {
        Reason.LEAST_EXPECTED_LOSS,
        Reason.LEAST_RECENTLY_USED,
        Reason.IDLE_TIMEOUT,
        Reason.LEAST_VALUE_PER_BYTE,
        Reason.HIGHEST_SCORE,
        Reason.GHOST,
    }
)

_HOLDS_A_LOAD = frozenset(
    {
        Reason.NO_ROOM,
        Reason.LOAD_SLOTS_FULL,
        Reason.COOL_DOWN,
        Reason.NEVER_FITS,
        Reason.NODE_LOST,
        Reason.UNKNOWN_MODEL,
        Reason.SHUTTING_DOWN,
    }
)

_HOLDS_A_PREFETCH = frozenset({Reason.GAIN_TOO_SMALL, Reason.PREFETCH_OFF, Reason.PREFETCH_WASTE})


def sentence(decision: Decision) -> str:
    """What was decided and why, such as ``Load llama: a request waits for this model.``"""
    return f"{_what(decision)} {decision.subject}: {explain(decision.reason)}."


def _what(decision: Decision) -> str:
    match decision.outcome:
        case Outcome.CHANGE:
            return _change(decision)
        case Outcome.HOLD:
            return _hold(decision.reason)
        case Outcome.ABSTAIN:
            return "No opinion on"
        case _:
            assert_never(decision.outcome)


def _change(decision: Decision) -> str:
    if decision.policy == "autoscale":
        return "Scale"
    if decision.policy == "instances":
        return "Instance"
    if decision.reason in _UNLOADS:
        return "Unload"
    if decision.reason is Reason.OPERATOR:
        # Loads say who waits for them; an operator's unload rests on nothing but the wish.
        names = {name for name, _ in decision.evidence}
        return "Load" if "waiting" in names else "Unload"
    return "Load" if decision.reason in _LOADS else "Change"


def _hold(reason: Reason) -> str:
    if reason in _HOLDS_A_LOAD:
        return "Wait with loading"
    return "Prefetch nothing on" if reason in _HOLDS_A_PREFETCH else "Leave"
